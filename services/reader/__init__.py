"""The reader: looks at the source, and plans which destination is to be brought from where to where.

Pure: ``steps`` (what was counted), ``ledger`` (the counted steps in a row), ``tracked`` (one destination), ``choose``
(its next item), ``hold`` (bounds and order), ``timers``, ``plan`` (events in, actions out), ``frontier``
(what is told to the others). Edges: ``source``, ``publish``, ``inbox``, ``service``.
"""
