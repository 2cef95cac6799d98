"""A range of the source, read once and held for its destinations."""
