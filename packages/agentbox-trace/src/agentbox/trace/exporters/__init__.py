"""The exporters: what a trace can be turned into. One file and one line in this table for each.

Nothing here may load an exporter before it is asked for.
"""

from __future__ import annotations

from ..errors import TraceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._base import Exporter

EXPORTERS = {
    "sqlite": "an SQLite database: tables `run` and `entries`, views `effects`, `observations`, `denials`",
}
"""Name of each exporter (and of its module here) to what it makes."""


def exporter(name: str) -> Exporter:
    """Return the exporter of that name. Raises `TraceError` (`usage`) for an unknown one."""
    if name not in EXPORTERS:
        raise TraceError(f"exporter: is {name!a}, expected one of {', '.join(EXPORTERS)}", code="usage")
    module: Exporter = __import__(f"{__name__}.{name}", fromlist=("export",))
    return module
