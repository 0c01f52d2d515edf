"""The `agentbox` command, for people and scripts.

Nothing here decides, enforces or records anything: it reads options, calls the other distributions, words the outcome.
"""

__version__ = "0.1.0"
