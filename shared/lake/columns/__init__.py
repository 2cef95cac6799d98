"""A table's columns: what they were, what they are called, and what became of them."""
