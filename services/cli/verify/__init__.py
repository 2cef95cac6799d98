"""``viaduck verify``: the proof that destinations equal their slices."""
