"""How the command line starts, finds and ends services."""
