"""The faults, by what they strike. Each is a function of an arena and a count that says what it did."""
