"""Columns of a destination's table follow the source's."""
