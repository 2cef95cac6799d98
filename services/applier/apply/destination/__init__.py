"""A destination's lake and its table: opened, made, laid out and looked at."""
