"""Commits by DuckLake's specification, past its extension."""
