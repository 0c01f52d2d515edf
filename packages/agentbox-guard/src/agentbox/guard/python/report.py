"""Sealed: how an allowed act is recorded and a refused one explained. Every event family ends here; nothing is decided.

A refusal is returned as the tuple (errno, text, path), so that only the hook's outermost frame raises.
"""

from __future__ import annotations

from errno import EACCES
from sys import _getframe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _json import encode_basestring_ascii as quote
    from types import FrameType
    from typing import Any

    from agentbox.guard.python.wire import ask, tell
    from agentbox.policy.forms.path import denied_text

    Refusal = tuple[int, str, str | None]

MUTATIONS = frozenset(
    ("fs.write", "fs.mkdir", "fs.rmdir", "fs.remove", "fs.rename", "fs.link", "fs.symlink", "fs.chmod")
    + ("fs.chown", "fs.utime", "fs.truncate", "fs.xattr", "fs.mknod")
)


def site(*, _getframe=_getframe, ours=(), library=(), ValueError=ValueError) -> str:
    """`file:line` of the innermost frame that is neither the guard's nor a library's, for divergence reports; or ""."""
    frame: FrameType | None = _getframe()
    while frame is not None:
        if frame.f_globals is not ours[0] and frame.f_globals is not ours[1]:
            name = frame.f_code.co_filename
            if name[:1] != "<" and not name.startswith(library):
                return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def verdict_of(answer: dict[str, Any], path: str | None, *, EACCES=EACCES) -> Refusal | None:
    """The supervisor's verdict as a refusal, or None when it allows.

    A denial's text ends with the policy line to paste, so it goes without the path that OSError would put behind it.
    """
    if answer["allow"] is True:
        return None
    text = answer.get("text") or "agentbox denied it"
    return (answer.get("errno") or EACCES, text, None if text[:8] == "agentbox" else path)


def inquire(
    op: str, args: dict[str, Any], path: str | None, *, ask=ask, site=site, hello="", verdict_of=verdict_of
) -> Refusal | None:
    """Have the supervisor decide and record; its refusal or None."""
    return verdict_of(ask(op, args, site(), hello), path)


def witness(
    op: str,
    args: dict[str, Any],
    path: str | None,
    *,
    asking="none",
    mutations=MUTATIONS,
    inquire=inquire,
    tell=tell,
    link=None,
    hello="",
) -> Refusal | None:
    """An allowed file operation: announce it, or ask where the session wants to be asked (replay, checkpoint)."""
    if asking == "all" or (asking == "writes" and op in mutations):
        return inquire(op, args, path)
    tell("event", op, args, "", link, hello)
    return None


def refuse(
    op: str,
    args: dict[str, Any],
    key: str,
    target: str,
    reason: str,
    fix: str | None,
    *,
    tell=tell,
    quote=quote,
    link=None,
    hello="",
    observe=False,
    errno=EACCES,
    denied_text=denied_text,
    policy_name="the policy",
) -> Refusal | None:
    """A refused operation: tell the supervisor, and say what was refused, why, and which policy line would allow it."""
    enforced = "false" if observe else "true"
    extra = (
        f',"key":{quote(key)},"target":{quote(target[:4096])},"reason":{quote(reason[:4096])},"rule":null,'
        f'"fix":{quote(fix[:4096]) if fix else "null"},"enforced":{enforced}'
    )
    tell("deny", op, args, extra, link, hello)
    if observe:
        return None
    return (errno, denied_text(op, target, reason, fix or "", policy_name), None)
