"""Sealed: the audit hook. Lets nothing pass that it could not decide; the one frame that the agent sees holds nothing.

Python calls it for every audit event of the process (PEP 578); most are not its business and leave by the first line.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.events.changes import on_changes
    from agentbox.guard.python.events.files import on_files
    from agentbox.guard.python.events.interpreter import on_interpreter
    from agentbox.guard.python.events.natives import on_natives
    from agentbox.guard.python.events.network import on_network
    from agentbox.guard.python.events.performed import on_performed
    from agentbox.guard.python.events.process import on_process
    from agentbox.guard.python.events.sqlite import on_sqlite
    from agentbox.guard.python.report import Refusal


def dispatch(
    event: str,
    args: tuple[Any, ...],
    *,
    files=frozenset(),
    changes=frozenset(),
    sqlite=frozenset(),
    network=frozenset(),
    process=frozenset(),
    performed=frozenset(),
    natives=frozenset(),
    on_files=on_files,
    on_changes=on_changes,
    on_sqlite=on_sqlite,
    on_network=on_network,
    on_process=on_process,
    on_interpreter=on_interpreter,
    on_performed=on_performed,
    on_natives=on_natives,
) -> Refusal | None:
    """Hand the event to its family."""
    if event in files:
        return on_files(event, args)
    if event in changes:
        return on_changes(event, args)
    if event in sqlite:
        return on_sqlite(event, args)
    if event in network:
        return on_network(event, args)
    if event in process:
        return on_process(event, args)
    if event in performed:
        return on_performed(event, args)
    if event in natives:
        return on_natives(event, args)
    return on_interpreter(event, args)


def settle(
    error: BaseException,
    *,
    type=type,
    KeyboardInterrupt=KeyboardInterrupt,
    RecursionError=RecursionError,
    MemoryError=MemoryError,
    SystemExit=SystemExit,
) -> tuple[Any, str]:
    """What to raise in place of an exception inside the guard: control flow keeps its type, all else is a denial."""
    kind = type(error)
    if kind is KeyboardInterrupt or kind is RecursionError or kind is MemoryError or kind is SystemExit:
        return kind, "inside the agentbox guard"
    return None, f"agentbox denied it: the guard could not decide ({kind.__name__})"


def hook(
    event: str,
    args: tuple[Any, ...],
    *,
    interesting=frozenset(),
    dispatch=dispatch,
    settle=settle,
    probe="",
    OSError=OSError,
    ImportError=ImportError,
    BaseException=BaseException,
    eacces=13,
) -> None:
    """Judge one event; an exception aborts the audited operation.

    Each exception is made here, after its cause is gone, so that no inner frame is seen.
    """
    if event not in interesting:
        return
    kind = None
    try:
        refusal = dispatch(event, args) if event != probe else (eacces, probe, None)
    except BaseException as error:
        kind, text = settle(error)
        refusal = (eacces, text, None)
    if refusal is None:
        return
    del dispatch, settle  # a traceback shows this frame, and outside of the hook tracing would show what they call
    if kind is not None:
        raise kind(refusal[1])
    if refusal[0] == -1:
        raise ImportError(refusal[1], name=refusal[2])
    if refusal[2] is None:
        raise OSError(refusal[0], refusal[1])
    raise OSError(refusal[0], refusal[1], refusal[2])
