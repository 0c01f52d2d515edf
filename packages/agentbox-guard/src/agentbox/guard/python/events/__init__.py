"""The audit events that the guard looks at, one family a file, and the one table of families."""

FAMILIES = ("files", "network", "process", "interpreter")
"""Modules of this folder, in the order in which the bootstrap executes them.

Each has EVENTS (names) and `on_<family>(event, args)`.
"""
