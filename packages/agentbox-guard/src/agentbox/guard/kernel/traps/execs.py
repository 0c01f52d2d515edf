"""Starts of programs: the resolved file is decided on, by the rules for the agent and by what it is for all others.

The kernel reads path and arguments once more after this decision, so the image that appears is compared with what was
decided, and ended if it is another (lineage.py); Landlock holds which files can be started at all.
"""

from __future__ import annotations

import errno
import os
import stat

from agentbox.guard.decisions._variables import ARGUMENTS, Injected
from agentbox.guard.kernel.inherited import Inherited
from agentbox.guard.kernel.process import AT_FDCWD, stat_fields
from agentbox.guard.kernel.proof import Content, Proof
from agentbox.guard.kernel.traps._base import AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, Box, number, refused
from agentbox.guard.kernel.traps._names import (
    APART,
    CHANGEABLE,
    DISGUISED,
    is_called_apart,
    is_disguised,
    is_lasting,
    misleading,
    working_folder,
    written_name,
)
from agentbox.guard.kernel.traps._starts import is_writable, problem, target, unreached
from agentbox.guard.meant import depends_on_folder, folder_problem
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.kernel.walk import Found

NO_FILE = "it is no file that a rule could name (a memory file, a deleted one)"
_HASH_HERE = 1 << 20
_LINE = 256  # BINPRM_BUF_SIZE, <linux/binfmts.h>
_NOTHING = (0, 0)
_THREADS = 17  # num_threads of proc_pid_stat(5), the state being 0
_MOST_SCRIPTS = 5  # exec_binprm() of fs/exec.c


class Request:
    """What an exec asks for, from its arguments: `path` from the folder `base`, and the supervisor's own copy of argv.
    `environ` is where the kernel reads the variables, `folder` the working directory that a script is found from, where
    that matters.
    """

    __slots__ = ("argv", "base", "environ", "flags", "folder", "path")

    def __init__(self, box: Box, call: Call, base: int, addresses: tuple[int, ...], flags: int) -> None:
        path, argv, self.environ = addresses
        self.base = base
        self.flags = flags
        self.path = box.memory.text(call.pid, path)
        self.argv = box.memory.words(call.pid, argv)
        self.folder: tuple[int, int] | None = None

    @property
    def words(self) -> list[str]:
        """argv as text."""
        return [os.fsdecode(word) for word in self.argv]


def _execve(box: Box, call: Call, name: str) -> None:
    _start(box, call, Request(box, call, AT_FDCWD, call.args[:3], 0))


def _execveat(box: Box, call: Call, name: str) -> None:
    base, *addresses, flags = call.args[:5]
    # AT_EXECVE_CHECK (Linux 6.14) starts nothing and would be recorded: it is not there, as on an older kernel.
    if number(flags) & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
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
        _check(found.fd)
        _decide(box, call, found, request)
    finally:
        found.close()


def _check(fd: int) -> None:
    """Raise the `OSError` of execve(2) for what the kernel would not start, so that no start is recorded: another kind
    of file, one without permission, one of a mount with noexec (access(2)).
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode) or not os.access(b"/proc/self/fd/%d" % fd, os.X_OK):
        raise refused()


def _decide(box: Box, call: Call, found: Found, request: Request) -> None:
    pid = box.ids(call).process
    if not box.lineage.started and pid == box.lineage.agent:
        box.lineage.started = True  # the launcher's own exec: the run's header tells of it
        box.inherited = Inherited(call.pid)
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
    if denial is not None and box.scribe.deny(pid, "proc.exec", args, denial, also=open_parent(call.pid)):
        raise refused()
    content = Content(box.hashes, found.fd, is_writable(box, found.text))
    fd, found.fd = found.fd, -1

    def done(outcome: Any) -> None:
        content.digest = args["sha256"] = outcome if type(outcome) is str else None
        try:
            if isinstance(outcome, OSError) and outcome.errno == errno.ECANCELED:
                content.close()  # whoever asked has gone: nothing is started
                return
            if launched:
                box.scribe.started(pid, args)
            elif denial is None:
                box.scribe.observe(pid, "proc.exec", args, also=open_parent(call.pid))
            box.scribe.flush()
            _let(box, call, pid, fd, request, content, injected if denial is None else None, found.path)
        except BaseException:
            content.close()
            raise
        finally:
            os.close(fd)

    _hash(box, call, fd, done)


def _hash(box: Box, call: Call, fd: int, done: Callable[[Any], None]) -> None:
    """Call `done` with the program's hash, or the error: a large one is read in a thread, while the call waits."""

    def work() -> str:
        return box.hashes.descriptor(fd, lambda: box.listener.stands(call))

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
        return Denial("exec", target(found.text, words), NO_FILE), None
    named = found.text
    denial = problem(box, pid, named, words)
    if denial is not None:
        named = _named(box, call, found, request)
        if not named:
            return _explained(box, call, denial, found, request), None
    elif is_disguised(box, call, found, request):
        return Denial(
            "exec", target(named, words), DISGUISED, fix=box.desk.policy.decide("exec", named, words).fix
        ), None
    interpreters = _interpreters(box, call, found.fd)
    denial = unreached(box, [found.text, *interpreters], words)
    if denial is not None or not box.lineage.is_agent(pid):
        return denial, None
    misleads = misleading(box, found, request, bool(interpreters))
    injected = Injected(box.desk.policy, named, words, box.desk.environ, interpreters, misleads)
    steered = "" if injected.any else box.inherited.problem(call.pid)
    if steered:
        return Denial("exec", target(named, words), steered), None
    if depends_on_folder(box.desk.policy, named, words):
        folder = working_folder(box, call, request)
        denial = folder_problem(box.desk.policy, named, words, folder, box.desk.private.values())
        if denial is not None:
            return denial, None
    if not interpreters and injected.is_told and is_called_apart(box, call, found, request):
        fix = box.desk.policy.decide("exec", named, words[:1]).fix
        return Denial("exec", target(named, words), APART + ARGUMENTS, fix=fix), None
    if interpreters and not injected.any and not is_lasting(box, call, found, request):
        return Denial("exec", target(found.text, words), CHANGEABLE.format(found.text)), None
    variables = [] if injected.any else box.memory.words(call.pid, request.environ)
    return injected.refusal(variables), injected


def _explained(box: Box, call: Call, denial: Denial, found: Found, request: Request) -> Denial:
    """A refusal by the rules, its suggestion fit for the variables of this start where those are judged."""
    if not denial.fix or not box.lineage.is_agent(box.ids(call).process):
        return denial
    try:
        interpreters = _interpreters(box, call, found.fd)
    except OSError:
        return denial  # it could not start anyway
    words = request.words
    injected = Injected(box.desk.policy, found.text, words, box.desk.environ, interpreters)
    variables = box.memory.words(call.pid, request.environ)
    return injected.beside(denial, variables)


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


def open_parent(pid: int) -> int:
    """The parent of a thread's process; 0 when it is gone."""
    from agentbox.guard.family import parent_and_group

    return parent_and_group(pid)[0]


def _let(
    box: Box, call: Call, pid: int, fd: int, request: Request, content: Content, injected: Injected | None, path: bytes
) -> None:
    """Let the exec of the resolved `path` go on, and expect what it must lead to."""
    line = first_line(fd)
    argv = request.argv
    if line:
        program: tuple[int, int] | None = _interpreter(box, call, line)
        argv = [written_name(request), *argv[1:]]
        if content.digest:
            _expect_script(box, call, pid, fd, {path, box.tree.absolute(call.pid, argv[0], AT_FDCWD)}, content.digest)
    else:
        info = os.fstat(fd)
        program = (info.st_dev, info.st_ino) if os.access(b"/proc/self/fd/%d" % fd, os.R_OK) else None
    keeps = box.inherited if injected is not None and not injected.any and _has_threads(pid) else None
    proof = Proof(content, injected, script=bool(line), folder=request.folder, keeps=keeps)
    box.lineage.expect(pid, call.pid, program, argv, whole=not line, proof=proof)
    _proceed(box, call)


def _expect_script(box: Box, call: Call, pid: int, fd: int, names: set[bytes], digest: str) -> None:
    if box.scripts is None:
        from agentbox.guard.kernel.scripts import Scripts

        box.scripts = Scripts(box.hashes)
    box.scripts.expect(pid, frozenset(map(os.path.normpath, names)), fd, digest)


def _has_threads(pid: int) -> bool:
    """Whether another thread could change what the one that waits keeps over its exec (SECCOMP_FILTER_FLAG_TSYNC)."""
    return int(stat_fields(pid)[_THREADS]) > 1


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
    none any more, so that the exec must fail.
    """
    try:
        return [file for _, file in _way(box, call, line)][-1]
    except OSError:
        return _NOTHING


def _interpreters(box: Box, call: Call, fd: int) -> list[str]:
    """The files that the kernel opens besides the script that `fd` is of; none for another program."""
    return [text for text, _ in _way(box, call, first_line(fd))]


def _first_word(text: bytes) -> bytes:
    """The interpreter of a script's first line: only blanks and tabs end a word there (fs/binfmt_script.c)."""
    text = text.strip(b" \t").partition(b"\0")[0]
    return text.replace(b"\t", b" ").partition(b" ")[0]


def _way(box: Box, call: Call, line: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Path and file of each interpreter, and the file again where it is the last one; `_NOTHING` while it is not.

    Raises the `OSError` of execve(2) where the way leads to nothing that the kernel would start.
    """
    for _ in range(_MOST_SCRIPTS if line else 0):
        word = _first_word(line[2:])
        if not word:
            raise OSError(errno.ENOEXEC, os.strerror(errno.ENOEXEC))
        found = box.tree.find(call.pid, word)
        try:
            _check(found.fd)
            line = first_line(found.fd)
            info = os.fstat(found.fd)
            yield found.text, _NOTHING if line else (info.st_dev, info.st_ino)
        finally:
            found.close()
        if not line:
            return
    if line:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


CALLS: dict[str, Handler] = {"execve": _execve, "execveat": _execveat}
