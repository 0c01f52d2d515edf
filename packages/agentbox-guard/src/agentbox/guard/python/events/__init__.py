"""The audit events that the guard looks at, one family a file. Importing it does nothing.

Each has EVENTS (names) and `on_<family>(event, args)`; they are listed in the bootstrap's SEALED_MODULES and called by
the hook's `dispatch`.
"""
