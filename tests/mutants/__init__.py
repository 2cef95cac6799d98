"""Planted mistakes: the tests are only trusted if they fail when they should. ``make mutants`` shows that they do."""
