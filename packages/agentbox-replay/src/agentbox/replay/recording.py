"""A trace opened for replay: verified, its steps indexed, each read again from the file when it is needed.

It never keeps a result or a body in memory, and never writes; what it cannot trust it refuses before the agent starts.
"""

from __future__ import annotations

from agentbox.replay.cursor import Cursor
from agentbox.replay.describe import StepView
from agentbox.replay.errors import TraceInvalid, TraceMissing
from agentbox.replay.identity import identity, is_body, is_step, key_of
from agentbox.replay.prestate import WRITES, PreState
from agentbox.replay.relocate import Relocation
from agentbox.trace import TraceError, load_body, verify
from agentbox.trace.record import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.trace import Entry

CLAIM = "guard.claim"
UNSERVABLE = {"proc.exec": "starts of programs", "net.": "network accesses"}
"""Direct actions that replay refuses (beginning of the op), and what a message calls them."""


class Recording:
    """The recorded steps of one trace and what else of it replay needs; `close` it at the end."""

    __slots__ = (
        "_cwd",
        "_file",
        "_outside",
        "_running",
        "_seen",
        "checkpoint",
        "cursor",
        "denials",
        "header",
        "last_write",
        "moved",
        "path",
        "prestate",
        "refused",
        "states",
        "status",
        "unservable",
    )

    def __init__(self, path: str, cwd: str | None = None) -> None:
        self.path = path
        self._cwd = cwd
        self.moved: Relocation | None = None
        """How recorded paths are read when the working directory is another one than recorded."""
        self.header: dict[str, Any] = {}
        """The `run.start` record's args."""
        self.cursor = Cursor()
        self.prestate = PreState()
        self.states: dict[str, str] = {}
        """Final state of every file written directly: sha256 in hex, `absent`, or a word for what is no file."""
        self.last_write: dict[str, int] = {}
        """Path to the last step that changed it."""
        self.status: int | None = None
        """The recorded exit status; None in an unsealed trace."""
        self.denials = 0
        self.refused: dict[tuple[str, str], bool] = {}
        """(op, target) of what the policy denied to whether it was really refused: under `--observe` it was not."""
        self.checkpoint = ""
        """The id of the snapshot that was taken before the run's first change."""
        self.unservable: dict[str, int] = {}
        self._outside: set[int] = set()
        self._running = 0
        self._seen: dict[bytes, list[int]] = {}
        self._file = open(path, "rb")

    @classmethod
    def open(cls, path: str, *, allow_unsealed: bool = False, cwd: str | None = None) -> Recording:
        """Verify and index a trace. Raises `TraceMissing` if it cannot be read and `TraceInvalid` if it is damaged.

        Paths below the recorded working directory are read as paths below `cwd` (absolute and resolved). With
        `allow_unsealed`, a trace without its last line is accepted, and what holds of a torn one.
        """
        end = _verified(path, allow_unsealed)
        recording = cls(path, cwd)
        try:
            recording._index(end)
        except TraceError as error:
            recording.close()
            raise TraceInvalid(str(error), hint=error.hint) from error
        except BaseException:
            recording.close()
            raise
        return recording

    def __len__(self) -> int:
        return len(self.cursor)

    def has_own_network(self) -> bool:
        """Whether the recorded run had the layer that gives it a network of its own."""
        return "netns" in self._layers()

    def has_kernel_view(self) -> bool:
        """Whether the recorded run had the layer that tells of what native code does."""
        return "seccomp" in self._layers()

    def _layers(self) -> list[Any]:
        found = self.header.get("layers")
        return found if isinstance(found, list) else []

    def has_own_shm(self) -> bool:
        """Whether the recorded run had the layers that give it a /dev/shm of its own."""
        return self.has_own_network() and self.has_kernel_view()

    def entry(self, step: int) -> Entry:
        """The step's record, read from the file."""
        self._file.seek(self.cursor.offset(step))
        return self._relocated(parse(self._file.readline(), step + 1, self.path))

    def view(self, step: int) -> StepView:
        """The step for a reader, bodies loaded."""
        entry = self.entry(step)
        args = {name: self._shown(value) for name, value in entry.args.items()}
        site = str(entry.extra.get("site", ""))
        return StepView(entry.kind, entry.op, args, number=step + 1, seq=entry.seq, lane=entry.lane, site=site)

    def result(self, step: int) -> dict[str, Any]:
        """The recorded result of an effect, its bodies as bytes. Raises `TraceInvalid` when a body is damaged."""
        entry = self.entry(step)
        try:
            return {name: self._loaded(value) for name, value in (entry.result or {}).items()}
        except TraceError as error:
            raise TraceInvalid(f"{self.path}: step {step + 1}: {error}", hint=error.hint) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _loaded(self, value: Any) -> Any:
        return load_body(value, self.path) if is_body(value) else value

    def _shown(self, value: Any) -> Any:
        try:
            return self._loaded(value)
        except TraceError:
            return value  # the report is worth more than this body

    def seen(self, key: bytes) -> list[StepView]:
        """File accesses with this key that the kernel's layers alone recorded: they may happen in a replay, or not."""
        found = []
        for offset in self._seen.get(key, ()):
            self._file.seek(offset)
            entry = parse(self._file.readline(), 0, self.path)
            kind, op, args = (
                ("observe", *_claimed(entry.args)) if entry.kind == "meta" else (entry.kind, entry.op, entry.args)
            )
            found.append(StepView(kind, op, args if self.moved is None else self.moved.args(args), lane=entry.lane))
        return found

    @property
    def let_pass(self) -> int:
        """How many different calls were let pass against the policy, under `--observe`."""
        return sum(1 for enforced in self.refused.values() if not enforced)

    def _relocated(self, entry: Entry) -> Entry:
        if self.moved is not None:
            entry.args = self.moved.args(entry.args)
        return entry

    def _index(self, end: int) -> None:
        offset = 0
        for number, raw in enumerate(self._file, 1):
            if offset >= end:
                break
            entry = parse(raw, number, self.path)
            try:
                self._note(self._relocated(entry), offset)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                text = (
                    f"{self.path}: line {number}: {entry.op} holds unusable members ({type(error).__name__}: {error})"
                )
                raise TraceInvalid(text, hint="was it written by another version of agentbox?") from error
            offset += len(raw)

    def _note(self, entry: Entry, offset: int) -> None:
        kind, op, args = entry.kind, entry.op, entry.args
        if kind == "meta":
            self._note_meta(op, args, offset)
        elif int(entry.lane.partition(".")[0]) in self._outside:
            return
        elif kind == "deny":
            if entry.src != "kernel":
                self._note_denial(entry)
        elif op == "hook.checkpoint" and isinstance(entry.result, dict):
            self.checkpoint = str(entry.result.get("id") or "")
        elif entry.src == "kernel":
            # What no guard told of may not be told of again: native code's acts, and a guard's that came too late.
            if op.startswith("fs.") and is_step(kind, op, args):
                self._seen.setdefault(key_of(kind, op, identity(kind, op, args)), []).append(offset)
        elif is_step(kind, op, args):
            if kind == "effect" and not isinstance(entry.result, (dict, type(None))):  # which any trace may hold
                raise TypeError(f"result: got {type(entry.result).__name__}, expected an object")
            step = len(self.cursor)
            self.cursor.add(entry.lane, key_of(kind, op, identity(kind, op, args)), offset)
            failed = isinstance(entry.result, dict) and "error" in entry.result
            if not failed:
                self.prestate.add(kind, op, args)
                if op in WRITES:
                    self.last_write.update((args[name], step) for name in ("path", "to") if name in args)
            if kind == "observe":
                self._note_unservable(op)
        if kind == "effect" and op == "proc.run":
            self._running -= 1

    def _note_meta(self, op: str, args: dict[str, Any], offset: int) -> None:
        if op == "run.start":
            self.header = args
            self.moved = Relocation.between(args.get("cwd"), self._cwd)
        elif op == "run.end":
            self.status = args.get("status")
        elif op == "effect.begin" and args["op"] == "proc.run":
            self._running += 1
        elif op == "process.start":
            # A program of box.run is served, not started: what it did itself under a guard will not happen again. It is
            # known by having no guarded parent and by starting while such a call is under way.
            number, parent = args["process"], args["parent"]
            if parent in self._outside or (parent is None and number and self._running > 0):
                self._outside.add(number)
        elif op == CLAIM:
            # What a guard alone has told of, mostly because it failed: it may be told again.
            claimed, facts = _claimed(args)
            facts = facts if self.moved is None else self.moved.args(facts)
            self._seen.setdefault(key_of("observe", claimed, identity("observe", claimed, facts)), []).append(offset)
        elif op == "fs.state" and args["path"]:  # an empty path says that there were too many to list
            self.states[args["path"]] = args["sha256"]

    def _note_denial(self, entry: Entry) -> None:
        self.denials += 1
        target = str(entry.extra.get("target", ""))
        if self.moved is not None:
            target = self.moved.path(target)
        self.refused[entry.op, target] = entry.extra.get("enforced") is not False

    def _note_unservable(self, op: str) -> None:
        for beginning, name in UNSERVABLE.items():
            if op.startswith(beginning):
                self.unservable[name] = self.unservable.get(name, 0) + 1


def _claimed(args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Op and args of what a guard alone has told of. Raises `TypeError` for what is no claim."""
    op, facts = args["op"], args["args"]
    if type(op) is not str or type(facts) is not dict:
        raise TypeError("expected an operation and an object")
    return op, facts


_WAYS_OUT = {
    **dict.fromkeys(("unsealed", "torn"), "agentbox replay --allow-unsealed takes what is there"),
    **dict.fromkeys(("empty", "not-a-trace"), "nothing was run; name a file that agentbox run has written with -t"),
}


def _verified(path: str, allow_unsealed: bool) -> int:
    """The byte after the last line that may be replayed. Raises `TraceMissing` and `TraceInvalid`."""
    try:
        report = verify(path, allow_unsealed=allow_unsealed)
    except TraceError as error:
        raise TraceMissing(str(error), hint=error.hint) from error
    torn = report.status == "torn" and allow_unsealed and report.entries > 0
    if not report.ok and not torn:
        hint = _WAYS_OUT.get(report.status, "nothing was run; agentbox verify tells what still holds")
        raise TraceInvalid(f"the trace does not verify: {report.message}", hint=hint)
    return report.offset
