"""What an effect is, and the checks of SDK arguments that several effects share.

Arguments come from the agent and are hostile until checked; nothing here may trust their types or decide policy.
"""

from __future__ import annotations

import os

from agentbox.guard.context import EffectUsage
from agentbox.guard.paths import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from agentbox.guard.context import EffectContext

    Args = dict[str, Any]
    Result = dict[str, Any]

    class Effect(Protocol):
        """One kind of SDK call. A new kind is one file here and one line in the table `EFFECTS`.

        `normalise` checks and decides, `perform` does it; what both may do is the contract of `EffectContext`. Results
        and recorded args hold JSON values, and `bytes` for bodies.
        """

        op: str
        irreversible: bool
        """Its intent is written to the trace before, its result after."""
        mutates: bool
        """It may change local files, so `--checkpoint` comes before the first of them."""
        slow: bool
        """`perform` may wait for something, so it runs in a worker thread."""

        def normalise(self, args: Args, context: EffectContext) -> Args:
            """The call's args checked, resolved and allowed; raises `EffectUsage` and `EffectDenied`."""

        def identity(self, args: Args) -> Args:
            """What replay matches on, from normalised or from recorded args: the request and not how it was asked."""

        def perform(self, args: Args, context: EffectContext) -> Result:
            """Do it; a failure is a result with `error`. Raises `EffectDenied` when something new must be decided."""


LIMIT = 64 * 1024 * 1024
"""The most bytes that one file, HTTP body or output stream of an SDK call may have."""
LONGEST_WAIT = 24 * 3600.0
"""The longest `timeout` in seconds."""


def text(args: Args, name: str, op: str) -> str:
    """The member `name`: a text, not empty, without NUL."""
    value = args.get(name)
    if type(value) is not str or not value or "\0" in value:
        raise EffectUsage(f"{op}: {name}: got {shown(value)}, expected a text without NUL characters")
    return value


def path(args: Args, name: str, op: str, cwd: str) -> str:
    """The member `name` as a path, absolute but otherwise as it was written."""
    value = text(args, name, op)
    if not is_name(value):
        raise EffectUsage(f"{op}: {name}: got {shown(value)}, expected a name that the system can take")
    return os.path.join(cwd, value)


def seconds(args: Args, name: str, op: str) -> float | None:
    """The member `name` as a time span in seconds, or None when it is absent."""
    value = args.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value <= LONGEST_WAIT:
        raise EffectUsage(f"{op}: {name}: got {shown(value)}, expected seconds, more than 0 and at most 86400")
    return float(value)


def body(args: Args, name: str, op: str) -> bytes | None:
    """The member `name` as bytes, from the forms of the channel (`{"text"}`, `{"base64"}`); None when absent."""
    value = args.get(name)
    data: object = value
    if type(value) is dict and len(value) == 1:
        data = value.get("text", value.get("base64"))
        if type(data) is str:
            data = _decode(data, "base64" in value)
    if value is not None and type(data) is not bytes:
        raise EffectUsage(f'{op}: {name}: got {shown(value)}, expected {{"text": ...}} or {{"base64": ...}}')
    if data is not None and len(data) > LIMIT:  # type: ignore[arg-type]
        raise EffectUsage(f"{op}: {name}: got {len(data)} bytes, expected at most {LIMIT}")  # type: ignore[arg-type]
    return data  # type: ignore[return-value]


def _decode(data: str, base64: bool) -> bytes | None:
    import binascii

    try:
        return binascii.a2b_base64(data, strict_mode=True) if base64 else data.encode()
    except ValueError:
        return None


def shown(value: object) -> str:
    """A value in an error text: its repr, short."""
    spelled = repr(value)
    return spelled if len(spelled) <= 80 else spelled[:77] + "..."


def sha256(data: bytes) -> str:
    """The SHA-256 of a body in lower-case hex."""
    from hashlib import sha256 as digest

    return digest(data).hexdigest()


def body_identity(data: object) -> str | None:
    """What stands for a body when two calls are compared: its SHA-256, in whatever form it comes."""
    if data is None:
        return None
    if type(data) is dict and type(data.get("sha256")) is str:
        return str(data["sha256"])
    known = body({"body": data}, "body", "identity")
    return None if known is None else sha256(known)


def os_error(error: OSError) -> Result:
    """The result that says that the operating system refused."""
    import errno

    return {"error": {"type": "os", "text": error.strerror or str(error), "errno": error.errno or errno.EIO}}
