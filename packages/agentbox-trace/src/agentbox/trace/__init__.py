"""The trace of agentbox: hash-chained JSON Lines, written, read and verified (docs/spec/trace.md).

This file must never load more than it is asked for: the names below arrive at their first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .blobs import describe_body as describe_body
    from .blobs import load_body as load_body
    from .earlier import older as older
    from .earlier import rotate as rotate
    from .errors import TraceError as TraceError
    from .exporters import EXPORTERS as EXPORTERS
    from .exporters import exporter as exporter
    from .reader import read as read
    from .record import FORMAT as FORMAT
    from .record import KINDS as KINDS
    from .record import Entry as Entry
    from .redact import Redactor as Redactor
    from .redact import same_redacted as same_redacted
    from .report import Report as Report
    from .verifier import verify as verify
    from .verifier import verify_from as verify_from
    from .writer import TraceWriter as TraceWriter

_HOME = {
    "EXPORTERS": "exporters",
    "Entry": "record",
    "FORMAT": "record",
    "KINDS": "record",
    "Redactor": "redact",
    "Report": "report",
    "TraceError": "errors",
    "TraceWriter": "writer",
    "describe_body": "blobs",
    "exporter": "exporters",
    "load_body": "blobs",
    "older": "earlier",
    "read": "reader",
    "rotate": "earlier",
    "same_redacted": "redact",
    "verify": "verifier",
    "verify_from": "verifier",
}

__all__ = [
    "EXPORTERS",
    "FORMAT",
    "KINDS",
    "Entry",
    "Redactor",
    "Report",
    "TraceError",
    "TraceWriter",
    "describe_body",
    "exporter",
    "load_body",
    "older",
    "read",
    "rotate",
    "same_redacted",
    "verify",
    "verify_from",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # __import__ with a name list returns the submodule itself, without loading importlib.
    value = getattr(__import__(f"{__name__}.{home}", fromlist=(name,)), name)
    globals()[name] = value
    return value
