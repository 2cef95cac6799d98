"""The reader: polls the source, and plans which destination moves from which position to which.

``planner`` is pure: events in, actions out. ``source`` reads the lake, ``messaging`` the topics; ``loop`` is the one
thread that connects them, and ``service`` the process.
"""
