"""How results are shown: tables, JSON lines, text made safe for terminals."""
