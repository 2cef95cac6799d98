"""How a lake is reached: DuckDB instances, secrets, and the database of its catalog."""
