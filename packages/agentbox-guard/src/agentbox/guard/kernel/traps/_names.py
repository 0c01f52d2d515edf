"""By which names programs are started: names that the run can change are good neither for a script that a rule names,
nor for a program of the system that another program takes for what it is called.

It looks links up, and decides on no rule.
"""

from __future__ import annotations

import os

from agentbox.guard.kernel.process import AT_FDCWD
from agentbox.guard.paths import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Box
    from agentbox.guard.kernel.traps.execs import Request
    from agentbox.guard.kernel.walk import Found

CHANGEABLE = "its interpreter reads it by the name that it is started with, which the run may change; start it as {}"
APART = "it is called by a path that the run may change, where it would look for parts of its own"
DISGUISED = "a link that the run may write gives this program the name of another"
_MOST_LINKS = 40  # path_resolution(7)
_NOBODYS = (0, 0)


def written_name(request: Request) -> bytes:
    """The name under which the kernel gives a script to its interpreter (fs/exec.c, alloc_bprm)."""
    path, base = request.path, request.base
    if path[:1] == b"/" or base == AT_FDCWD:
        return path
    return b"/dev/fd/%d/%s" % (base, path) if path else b"/dev/fd/%d" % base


def is_lasting(box: Box, call: Call, found: Found, request: Request) -> bool:
    """Whether the name by which its interpreter will read a script leads to what was found for as long as the run goes
    on. What the run may write is whatever it writes: the rule that names it says so.
    """
    if not box.judge.immutable(found.text):
        return True
    written = _from_folder(box, call, request, os.fsdecode(written_name(request)))
    return box.judge.leads(written, found.text)


def is_called_apart(box: Box, call: Call, found: Found, request: Request) -> bool:
    """Whether argv[0] is a path that the run can make another's: some programs find their parts beside it, as Python
    its packages (`pyvenv.cfg`, site(3)), PHP its settings and gcc its compiler.
    """
    name = request.words[0] if request.words else ""
    if "/" not in name or not box.judge.immutable(found.text):
        return False
    return not box.judge.leads(_from_folder(box, call, request, name), found.text)


def misleading(box: Box, found: Found, request: Request, script: bool) -> Callable[[str], bool]:
    """Whether the agent's own choice of PATH has a folder that the run may change, where a program that looks itself up
    there would look first; of a `script`, which looks others up, any such folder.
    """
    name = request.words[0] if request.words and not script else ""
    given = box.desk.environ.get("PATH", "").split(":")

    def misleads(path: str) -> bool:
        if not box.judge.immutable(found.text) or "/" in name or not (name or script):
            return False
        for folder in path.split(":"):
            file = os.path.join(folder, name).rstrip("/")
            if folder not in given and not (folder.startswith("/") and box.judge.leads(file, os.path.realpath(file))):
                return True
            if name and os.path.exists(file):
                return False
        return False

    return misleads


def _from_folder(box: Box, call: Call, request: Request, name: str) -> str:
    """A name as an absolute path."""
    return name if name.startswith("/") else f"{working_folder(box, call, request)}/{name}"


def working_folder(box: Box, call: Call, request: Request) -> str:
    """The working directory of a start that depends on it, which the image that appears must then have as well."""
    folder = os.fsdecode(box.askers.base(call.pid, AT_FDCWD))
    request.folder = identity(folder) or _NOBODYS
    return folder


def is_disguised(box: Box, call: Call, found: Found, request: Request) -> bool:
    """Whether a program that no rule names is started over a link of the run's that is called otherwise than it.

    What a rule has let in starts others by names that it looks up in the agent's PATH: a pager, an interpreter. Such a
    link would make any program of the system of them. Raises `OSError`.
    """
    pid = box.ids(call).process
    if (
        not request.path
        or box.lineage.is_agent(pid)
        or box.desk.policy.decide("exec", found.text, request.words).allowed
    ):
        return False
    path, base = request.path, request.base
    for _ in range(_MOST_LINKS):
        here = box.tree.parent(call.pid, path, base)
        try:
            if box.judge.immutable(here.text):
                break
            to = os.readlink(here.leaf, dir_fd=here.folder)
        except OSError:
            break
        finally:
            here.close()
        path = os.path.join(os.path.dirname(here.path), to)
    return _program(path) != _program(request.path)


def _program(path: bytes) -> bytes:
    """What a program is called, its version aside: `python3.12` is a python."""
    return os.path.basename(path).rstrip(b"0123456789.-")
