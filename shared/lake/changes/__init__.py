"""Which rows a range of snapshots has changed, by a table's files instead of DuckLake's own functions."""
