"""Commits to a lake by DuckLake's own specification, past its extension: one look, files, one batch.

``look`` asks one statement, ``positions`` and ``files`` write Parquet files, ``batch`` says which rows each metadata
table gets, and a ``Catalog`` brings all of them about or none. ``eligibility`` says when the extension commits instead.
Nothing is held open between the steps: the batch's condition is that the newest snapshot has not changed since the
look, so a commit of a rival in between makes it fail as a whole.
"""
