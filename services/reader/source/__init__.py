"""The source lake as the reader observes it."""
