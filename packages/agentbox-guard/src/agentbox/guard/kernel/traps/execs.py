"""Starts of programs: the resolved file is decided on, by the rules for the agent and by what it is for all others.

The kernel reads path and arguments once more after this decision, so the image that appears is compared with what was
decided, and ended if it is another (lineage.py); Landlock holds which files can be started at all.
"""

from __future__ import annotations

import errno
import os
import stat

from agentbox.guard.decisions import denial_of
from agentbox.guard.decisions._base import rule_text
from agentbox.guard.kernel.injected import Injected
from agentbox.guard.kernel.process import AT_FDCWD
from agentbox.guard.kernel.proof import Content, Proof
from agentbox.guard.kernel.traps._base import AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, Box, refused
from agentbox.guard.paths import within
from agentbox.guard.session import Denial
from agentbox.policy.forms.path import path_fix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.kernel.walk import Found

NO_FILE = "it is no file that a rule could name (a memory file, a deleted one)"
LOADER = "the loader starts any file as a program, past the rules: a rule must name this very file"
UNREACHED = "Landlock holds the run to the folders that it was started with, and no read: or exec: rule led to this one"
WRITABLE = "a program in a folder that the run may write needs an exec: rule that names it"
_LOADERS = ("ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-2.")
_HASH_HERE = 1 << 20
_LINE = 256  # BINPRM_BUF_SIZE, <linux/binfmts.h>
_NOTHING = (0, 0)
_MOST_SCRIPTS = 5  # exec_binprm() of fs/exec.c


def is_loader(file: str) -> bool:
    """True for the program loader of ld.so(8), by the names that C libraries give it."""
    return os.path.basename(file).startswith(_LOADERS)


class Request:
    """What an exec asks for, from its arguments: `path` from the folder `base`, and the supervisor's own copy of argv.
    `environ` is where the kernel reads the variables.
    """

    __slots__ = ("argv", "base", "environ", "flags", "path")

    def __init__(self, box: Box, call: Call, base: int, addresses: tuple[int, ...], flags: int) -> None:
        path, argv, self.environ = addresses
        self.base = base
        self.flags = flags
        self.path = box.memory.text(call.pid, path)
        self.argv = box.memory.words(call.pid, argv)

    @property
    def words(self) -> list[str]:
        """argv as text."""
        return [os.fsdecode(word) for word in self.argv]


def _execve(box: Box, call: Call, name: str) -> None:
    _start(box, call, Request(box, call, AT_FDCWD, call.args[:3], 0))


def _execveat(box: Box, call: Call, name: str) -> None:
    base, *addresses, flags = call.args[:5]
    _start(box, call, Request(box, call, base & 0xFFFFFFFF, tuple(addresses), flags))


def _start(box: Box, call: Call, request: Request) -> None:
    if not request.path and request.flags & AT_EMPTY_PATH:
        found = box.tree.behind(call.pid, request.base)
    else:
        follow = not request.flags & AT_SYMLINK_NOFOLLOW
        found = box.tree.find(call.pid, request.path, request.base, follow=follow)
    try:
        info = os.fstat(found.fd)
        if stat.S_ISLNK(info.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not stat.S_ISREG(info.st_mode) or not info.st_mode & 0o111:
            raise refused()
        _decide(box, call, found, request)
    finally:
        found.close()


def _written(request: Request) -> bytes:
    """The name under which the kernel gives a script to its interpreter (fs/exec.c, alloc_bprm)."""
    path, base = request.path, request.base
    if path[:1] == b"/" or base == AT_FDCWD:
        return path
    return b"/dev/fd/%d/%s" % (base, path) if path else b"/dev/fd/%d" % base


def _decide(box: Box, call: Call, found: Found, request: Request) -> None:
    pid = box.ids(call).process
    if not box.lineage.started and pid == box.lineage.agent:
        box.lineage.started = True  # the launcher's own exec: the run's header tells of it
        _proceed(box, call)
        return
    launched = box.launches.take(call.fd, pid)
    words = request.words
    try:
        folder = os.fsdecode(os.readlink(f"/proc/{call.pid}/cwd"))
    except OSError:
        folder = box.desk.cwd
    args: dict[str, Any] = {"file": found.text, "argv": words, "cwd": folder}
    denial: Denial | None = None
    injected: Injected | None = None
    if not launched:  # else it was decided on when the SDK asked for it
        denial, injected = _judge(box, call, pid, found, request)
    if denial is not None and box.scribe.deny(pid, "proc.exec", args, denial):
        raise refused()
    content = Content(box.hashes, found.fd, _is_writable(box, found.text))
    fd, found.fd = found.fd, -1

    def done(outcome: Any) -> None:
        content.digest = args["sha256"] = outcome if type(outcome) is str else None
        try:
            if launched:
                box.scribe.started(pid, args)
            elif denial is None:
                parent = int(open_parent(call.pid))
                box.scribe.observe(pid, "proc.exec", args, also=parent)
            box.scribe.flush()
            _let(box, call, pid, fd, request, content, injected if denial is None else None)
        except BaseException:
            content.close()
            raise
        finally:
            os.close(fd)

    _hash(box, fd, done)


def _hash(box: Box, fd: int, done: Callable[[Any], None]) -> None:
    """Call `done` with the program's hash, or the error: a large one is read in a thread."""

    def work() -> str:
        return box.hashes.descriptor(fd)

    info = os.fstat(fd)
    if info.st_size > _HASH_HERE and not box.hashes.known(info):
        box.jobs.run(work, done)
        return
    try:
        outcome: Any = work()
    except OSError as error:
        outcome = error
    done(outcome)


def _judge(box: Box, call: Call, pid: int, found: Found, request: Request) -> tuple[Denial | None, Injected | None]:
    """Why a process may not start what was found, or None; and how the variables of what it becomes are judged."""
    words = request.words
    if found.no_name or found.path[:1] != b"/":
        return Denial("exec", _target(found.text, words), NO_FILE), None
    named = found.text
    denial = problem(box, pid, named, words)
    if denial is not None:
        named = _named(box, call, found, request)
        if not named:
            return denial, None
    interpreters = _interpreters(box, call, found.fd)
    denial = unreached(box, [found.text, *interpreters], words)
    if denial is not None or not box.lineage.is_agent(pid):
        return denial, None
    injected = Injected(box.desk.policy, named, words, box.desk.environ, interpreters)
    reason = "" if injected.any else injected.reason(box.memory.words(call.pid, request.environ))
    return (Denial("exec", _target(found.text, words), reason) if reason else None), injected


def _named(box: Box, call: Call, found: Found, request: Request) -> str:
    """The very path that was asked for, if a rule names it, and that and what it leads to are the run's to write;
    else "".

    A program that is built or installed during the run may be a link, of which the rule could not know.
    """
    try:
        written = os.path.normpath(os.fsdecode(box.tree.absolute(call.pid, request.path, request.base)))
    except OSError:
        return ""
    policy = box.desk.policy
    decision = policy.decide("exec", written, request.words)
    named = decision.rule is not None and decision.allowed and decision.rule.form["match"] == "path"
    return written if named and policy.is_writable(written) and policy.is_writable(found.text) else ""


def _is_writable(box: Box, file: str) -> bool:
    return box.desk.policy.is_writable(file) or within(file, list(box.desk.private.values()))


def open_parent(pid: int) -> int:
    """The parent of a thread's process; 0 when it is gone."""
    from agentbox.guard.family import parent_and_group

    return parent_and_group(pid)[0]


def _let(
    box: Box, call: Call, pid: int, fd: int, request: Request, content: Content, injected: Injected | None
) -> None:
    """Let the exec go on, and expect what it must lead to."""
    line = first_line(fd)
    argv = request.argv
    if line:
        program: tuple[int, int] | None = _interpreter(box, call, line)
        argv = [_written(request), *argv[1:]]
    else:
        info = os.fstat(fd)
        program = (info.st_dev, info.st_ino) if os.access(b"/proc/self/fd/%d" % fd, os.R_OK) else None
    proof = Proof(content, injected, script=bool(line))
    box.lineage.expect(pid, call.pid, program, argv, whole=not line, proof=proof)
    _proceed(box, call)


def _proceed(box: Box, call: Call) -> None:
    box.askers.forget(call.pid)
    box.listener.proceed(call)


def first_line(fd: int) -> bytes:
    """The first line of a script, as far as the kernel reads it (execve(2)); b"" for any other file."""
    try:
        readable = os.open(b"/proc/self/fd/%d" % fd, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        head = os.read(readable, _LINE)
    finally:
        os.close(readable)
    return head.partition(b"\n")[0] if head[:2] == b"#!" else b""


def _interpreter(box: Box, call: Call, line: bytes) -> tuple[int, int]:
    """The file that a script's first line leads to, over at most `_MOST_SCRIPTS` scripts; `_NOTHING` when there is
    none, so that the exec must fail.
    """
    return [file for _, file in _way(box, call, line)][-1]


def _interpreters(box: Box, call: Call, fd: int) -> list[str]:
    """The files that the kernel opens besides the script that `fd` is of; none for another program."""
    return [text for text, _ in _way(box, call, first_line(fd)) if text]


def _way(box: Box, call: Call, line: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Path and file of each interpreter, and the file again where it is the last one; `_NOTHING` while it is not."""
    for _ in range(_MOST_SCRIPTS):
        words = line[2:].split(None, 1)
        if not words:
            break
        try:
            found = box.tree.find(call.pid, words[0].partition(b"\0")[0])
        except OSError:
            break
        try:
            line = first_line(found.fd)
            info = os.fstat(found.fd)
            yield found.text, _NOTHING if line else (info.st_dev, info.st_ino)
        finally:
            found.close()
        if not line:
            return
    yield "", _NOTHING


def problem(box: Box, pid: int, file: str, argv: list[str]) -> Denial | None:
    """Why a process may not start the resolved `file` with these arguments, or None."""
    target = _target(file, argv)
    policy = box.desk.policy
    if within(file, box.desk.hidden):
        return Denial("exec", target, "it is agentbox's own record of this run")
    decision = policy.decide("exec", file, argv)
    if decision.allowed:
        if is_loader(file) and decision.rule is not None and decision.rule.form["match"] == "any":
            return Denial("exec", target, LOADER, rule=rule_text(decision))
        return None
    if box.lineage.is_agent(pid):
        return denial_of(decision, "exec")
    if is_loader(file):
        return Denial("exec", target, LOADER, fix=decision.fix)
    if _is_writable(box, file):
        return Denial("exec", target, WRITABLE, fix=decision.fix)
    return None


def unreached(box: Box, files: list[str], argv: list[str]) -> Denial | None:
    """Why the kernel would not start a program that the rules allow, of which it opens these `files`, or None."""
    for file in files:
        if not box.reaches(file):
            line = path_fix("read", file, box.desk.cwd)
            fix = f"exec{line[len('read') :]}" if line else None
            return Denial("exec", _target(files[0], argv), UNREACHED, fix=fix)
    return None


def _target(file: str, argv: list[str]) -> str:
    return " ".join([file, *argv[1:]])[:400]


CALLS: dict[str, Handler] = {"execve": _execve, "execveat": _execveat}
