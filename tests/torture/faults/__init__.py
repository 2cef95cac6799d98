"""The faults, by what they strike. Each is a function of a rig and a count that says what it did."""
