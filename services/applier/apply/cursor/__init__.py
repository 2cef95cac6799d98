"""The cursor in a destination's lake: what it means, and how it moves."""
