"""Every exit status that agentbox itself gives, in one table; help and docs are made from it.

Never renumber one: scripts branch on them. `run` and `replay` pass the agent's own status on as it is; an `agentbox:`
line on standard error tells a failure of agentbox from an agent that happens to use the same number.
"""

from __future__ import annotations

OK = 0
NOT_VERIFIED = 1
DIVERGED = 3
TRACE_INVALID = 4
USAGE = 64
BAD_POLICY = 65
NO_INPUT = 66
UNAVAILABLE = 69
INTERNAL = 70
CANNOT_CREATE = 73
TRACE_IO = 74
NOT_EXECUTABLE = 126
NOT_FOUND = 127
INTERRUPTED = 130
CLOSED_PIPE = 141

TABLE: tuple[tuple[int, str, str], ...] = (
    (OK, "all", "done; for `run` and `replay`, the agent's own status when nothing below applies (128+n for signal n)"),
    (NOT_VERIFIED, "verify", "the trace is damaged, or not sealed, or not the one that `--head` names"),
    (DIVERGED, "replay", "the replay differs from the recording"),
    (TRACE_INVALID, "replay", "the trace does not verify, so nothing was replayed"),
    (USAGE, "all", "the command line is wrong"),
    (BAD_POLICY, "run, replay", "the policy does not parse"),
    (NO_INPUT, "all", "a file that was named (policy, trace) does not exist or cannot be read"),
    (UNAVAILABLE, "run, replay, doctor", "this machine or this command cannot be confined as asked; nothing was run"),
    (INTERNAL, "all", "the guard failed, or a defect in agentbox; the agent was ended"),
    (CANNOT_CREATE, "run, init", "the trace or the policy cannot be created"),
    (TRACE_IO, "all", "the trace or standard output cannot be written, for example on a full disk; an agent was ended"),
    (NOT_EXECUTABLE, "run, replay", "the command was found but cannot be executed"),
    (NOT_FOUND, "run, replay", "the command was not found"),
    (INTERRUPTED, "all", "interrupted with Ctrl-C"),
    (CLOSED_PIPE, "all", "whoever read the output went away"),
)
"""Rows of (status, subcommands that give it, meaning)."""

_OF_ERRORS = {
    "PolicyError": BAD_POLICY,
    "PolicyError unreadable": NO_INPUT,
    "TraceError": NO_INPUT,
    "TraceError usage": USAGE,
}
"""Class (and code) of an error that names no status itself, to the status that the command ends with."""


def of_error(error: Exception) -> int | None:
    """The status for an error of our distributions: its own `status`, or the table's; None for anything else."""
    if not type(error).__module__.startswith("agentbox."):
        return None
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status
    for kind in type(error).__mro__:
        for key in (f"{kind.__name__} {getattr(error, 'code', '')}", kind.__name__):
            if key in _OF_ERRORS:
                return _OF_ERRORS[key]
    return None
