"""``viaduck up``: the services as supervised child processes."""
