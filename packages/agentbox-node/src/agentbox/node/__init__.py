"""JavaScript runtimes of agentbox: in this version they are recognised and refused with a reason.

Never lets a JavaScript program run: without a guard inside it, only part of what it does would be seen.
"""

from agentbox.node.errors import NodeError, NodeUnsupported
from agentbox.node.runtime import RUNTIME

__all__ = ["RUNTIME", "NodeError", "NodeUnsupported"]

__version__ = "0.1.0"
