"""What an exporter is: a module with `suffix` and `export`.

It must never change the trace, and never write over a file that is there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from ..record import Entry

    class Exporter(Protocol):
        """One kind of output."""

        suffix: str
        """How the names of such files end, with the dot."""

        def export(self, entries: Iterable[Entry], target: str) -> int:
            """Write all entries to a new file `target`, mode 0600, and return how many. Raises `TraceError`
            (`exists`, `export`) and leaves nothing half-made."""
