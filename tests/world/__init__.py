"""The world that Viaduck is tested in: sources with a random history, what is true of them, and an oracle.

Nothing in here but ``transport`` and ``play`` knows the services: what is true comes from a plain model of the source,
and the oracle judges destinations from their public face alone (columns, rows, stamps and cursor).
"""
