"""What services agree on: messages, ranges, errors. Values only."""
