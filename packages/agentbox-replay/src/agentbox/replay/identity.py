"""What makes two steps the same: the part of their arguments that counts, equal in both runs, and its key.

It never counts what differs from run to run by nature: hashes of files read, process numbers, names in private folders.
"""

from __future__ import annotations

import json
from hashlib import sha256

from agentbox.guard.effects import EFFECTS
from agentbox.trace import describe_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.trace import Redactor

SKIPPED_EFFECTS = ("hook.",)
"""Effects of agentbox itself, by the beginning of their op: neither steps nor served."""
_CHANCE = ("proc.signal",)
"""Direct actions that a scheduler decides on: a pool that closes ends the workers that have not ended by themselves."""
PRIVATE = ("$TMPDIR", "$HOME", "$SHM")
"""How the trace writes the run's private folders, its own /dev/shm among them."""

_VOLATILE = {
    "fs.read": ("sha256", "size", "absent"),  # verified by their own check, with its own cause
    "fs.write": ("absent", "size"),  # what was there before
    "fs.mkdir": ("exists",),
}
_PLACEHOLDER = "«redacted:"


def is_step(kind: str, op: str, args: dict[str, Any]) -> bool:
    """True for what replay must meet again: SDK calls, and direct actions outside of the private folders.

    Neither signals nor sockets that get an address are of these.
    """
    if kind == "effect":
        return not op.startswith(SKIPPED_EFFECTS)
    return kind == "observe" and op not in _CHANCE and not is_private(args) and not is_listening(op, args)


def is_listening(op: str, args: dict[str, Any]) -> bool:
    """True for a socket that is given an address, which reaches nobody by that.

    urllib3 does so when it is imported, to see whether there is IPv6, and others do it to find a free port.
    """
    return op == "net.bind" and "address" in args


def is_private(args: dict[str, Any]) -> bool:
    """True if every path in `args` lies in the run's private folders."""
    paths = [args[name] for name in ("path", "to") if name in args]
    return bool(paths) and all(str(path).split("/", 1)[0] in PRIVATE for path in paths)


def identity(kind: str, op: str, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments that count, as JSON values; `args` are recorded, or live ones after `redacted`."""
    same = {name: stable(value) for name, value in args.items()}
    if kind == "effect" and op in EFFECTS:
        return EFFECTS[op].identity(same)
    return {name: value for name, value in same.items() if name not in _VOLATILE.get(op, ())}


def redacted(args: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Live args as the trace would hold them: without secrets."""
    bodies = {name: redactor.data(value) for name, value in args.items() if isinstance(value, bytes)}
    rest = redactor.doc({name: value for name, value in args.items() if name not in bodies})
    return {**rest, **bodies}


def key_of(kind: str, op: str, counts: dict[str, Any]) -> bytes:
    """The key of a step whose counting arguments are `counts`: 16 bytes, equal for equal steps."""
    text = json.dumps([kind, op, counts], separators=(",", ":"), sort_keys=True)
    return sha256(text.encode("ascii")).digest()[:16]


def is_body(value: object) -> bool:
    """True for the JSON form of a body (docs/spec/trace.md, section 6)."""
    return isinstance(value, dict) and "size" in value and ("blob" in value or "text" in value or "base64" in value)


def stable(value: object) -> object:
    """A value without what differs from run to run: bodies by hash, placeholders without digits, no temporary names."""
    if isinstance(value, bytes):
        value = _described(value)
    if isinstance(value, dict):
        if is_body(value):
            # One form for inline, stored and redacted bodies; effects take their identity from `sha256`.
            return {"sha256": value.get("redacted") or value.get("blob") or value.get("sha256")}
        return {name: stable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [stable(inner) for inner in value]
    return _stable_text(value) if isinstance(value, str) else value


def _described(data: bytes) -> dict[str, Any]:
    doc = describe_body(data)[0]
    if _PLACEHOLDER.encode() in data:
        from agentbox.trace.redact import stable_bytes

        doc["redacted"] = sha256(stable_bytes(data)).hexdigest()
    return doc


def _stable_text(text: str) -> str:
    if text.startswith(tuple(name + "/" for name in PRIVATE)):
        return text.split("/", 1)[0] + "/*"  # temporary names are random
    if _PLACEHOLDER in text:
        from agentbox.trace.redact import stable_bytes

        stable: bytes = stable_bytes(text.encode("utf-8", "surrogatepass"))
        return stable.decode("utf-8", "surrogatepass")
    return text
