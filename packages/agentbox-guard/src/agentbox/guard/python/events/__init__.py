"""The audit events that the guard looks at, one family a file, and their one table. Importing it does nothing."""

MODULES = ("files", "changes", "sqlite", "network", "process", "interpreter", "performed", "natives")
"""In the order in which the bootstrap executes them.

Each has EVENTS (names) and `on_<family>(event, args)`, which `dispatch` of the hook calls.
"""
