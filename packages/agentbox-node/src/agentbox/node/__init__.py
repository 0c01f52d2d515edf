"""JavaScript runtimes of agentbox: Node, with the guard and the SDK inside it. The JavaScript is package data in `js/`.

Never starts anything: `RUNTIME` is handed to agentbox.guard, which does.
"""

from agentbox.node.errors import NodeError, NodeUnguardable, NodeUnsupported
from agentbox.node.runtime import RUNTIME

__all__ = ["RUNTIME", "NodeError", "NodeUnguardable", "NodeUnsupported"]

__version__ = "0.1.0"
