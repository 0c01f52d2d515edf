"""The guard that runs inside a Python agent: bootstrap, audit hook, event families and facades.

Importing this package does nothing; `shim/sitecustomize.py` starts it. The modules beside it are sealed:
docs/reference/architecture.md.
"""
