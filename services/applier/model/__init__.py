"""Work items, tasks and offsets as values."""
