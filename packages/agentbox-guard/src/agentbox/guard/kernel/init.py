"""Process 1 of the run's process namespace, and the process that stands for it outside.

L, the launcher child, stays outside of the new namespace as the supervisor's child; P1 is the namespace's process 1 and
reaps; A is the agent. When L or P1 ends, the kernel ends everything in the namespace (pid_namespaces(7)). Neither ever
decides or records anything, and neither can be looked into by the agent.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import sys

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.netns import drop_capabilities
from agentbox.guard.kernel.process import stat_fields
from agentbox.guard.signals import ENDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Never

JOB_STOPS = {
    _signal.SIGTSTP: _signal.SIGTSTP,
    _signal.SIGTTIN: _signal.SIGTTIN,
    _signal.SIGTTOU: _signal.SIGTTOU,
    _signal.SIGSTOP: _signal.SIGTSTP,
}
"""What stops a job, and the signal by which others follow: one that stops nobody whom no shell could continue.

A shell takes its terminal back when its job has stopped, by SIGSTOP as well, which a program may send to itself.
"""

_GONE = 70
_RECORD = 5  # bytes of a report: its kind and four of a wait status or signal
_STOPPED, _ENDED = b"s", b"e"


def run(
    start: Callable[[], Never],
    *,
    in_init: Callable[[], object] = lambda: None,
    beside: Callable[[], object] = lambda: None,
    failed: Callable[[OSError], object] = lambda error: None,
) -> Never:
    """In L, of one thread, after `netns.enter`: start the agent in the new process namespace and follow it to its end.

    P1 calls `in_init` before it gives up its capabilities and starts A, and `beside` when A is on its way. A has the
    signal mask and the descriptors that L had, and calls `start`, which executes the program or ends the process. L
    ends as A ended, with its status or by its signal, when nothing of the namespace is left; it stops when A is
    stopped. The three share session and process group. Raises `OSError` when P1 cannot be made; what P1 or A raises,
    each of them gives to `failed` and ends.
    """
    reader, writer = os.pipe()
    sealed, seal = os.pipe()
    mask = _signal.pthread_sigmask(_signal.SIG_SETMASK, _signal.valid_signals())
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _signal.SIGKILL)  # a change of credentials may have cleared it
    try:
        process = os.fork()
    except OSError:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        raise
    if process == 0:
        try:
            os.close(reader)
            os.close(seal)
            _reap(lambda: _or_tell(start, failed), in_init, beside, mask, writer, sealed)
        except OSError as error:
            failed(error)
        finally:
            os._exit(_GONE)
    try:
        _pass_on(process)
        _follow(process, reader, seal)
    finally:
        os._exit(_GONE)


def _or_tell(start: Callable[[], Never], failed: Callable[[OSError], object]) -> Never:
    try:
        start()
    except OSError as error:
        failed(error)
    finally:
        os._exit(_GONE)


def _follow(process: int, reader: int, seal: int) -> Never:
    """L: pass on what P1 reports, and end when P1 has ended."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    drop_capabilities()
    os.write(seal, b"\0")
    _keep_only(reader)
    status = _signal.SIGKILL  # as a wait status: what P1 that ends without a word has met
    while record := _read(reader):
        number = int.from_bytes(record[1:], sys.byteorder)
        if record[:1] == _ENDED:
            status = number
        else:
            _stop(number)
    os.waitpid(process, 0)
    _end_as(status)


def _reap(
    start: Callable[[], Never],
    in_init: Callable[[], object],
    beside: Callable[[], object],
    mask: set[int],
    writer: int,
    sealed: int,
) -> Never:
    """P1: start the agent, collect all that ends, report the agent's stops and end."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _signal.SIGKILL)
    # No signal comes for an L that ended before the line above: then the pipe has no byte, or the other has no reader.
    if not os.read(sealed, 1) or _is_deserted(writer):
        os._exit(_GONE)
    in_init()
    drop_capabilities()  # before A is made, and of what is forked from here: each alone would take as long
    ready, go = os.pipe()
    agent = os.fork()
    if agent == 0:
        try:
            os.close(go)
            alive = os.read(ready, 1)
            os.close(ready)
            os.close(sealed)
            os.close(writer)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
            if alive:
                start()
        finally:
            os._exit(_GONE)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    _pass_on(agent)
    os.write(go, b"\0")
    beside()
    _keep_only(writer)
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED)
        if pid != agent:
            continue
        if os.WIFSTOPPED(status):
            if os.WSTOPSIG(status) in JOB_STOPS:
                _report(writer, _STOPPED, JOB_STOPS[os.WSTOPSIG(status)])
            continue
        _report(writer, _ENDED, status)
        os._exit(0)  # takes all that is left in the namespace along


def _pass_on(process: int) -> None:
    """Give a process that was just forked, and waits for us, what came for its group before it was there.

    Nobody else would: what a terminal sends has come to the supervisor too, who takes it for had. What came since the
    fork is pending there as it is here, and stays one signal (signal(7)).
    """
    for number in _signal.sigpending() & set(ENDING):
        os.kill(process, number)


def _stop(number: int) -> None:
    """Stop this process by the signal that stopped the agent; a group that nobody could continue does not stop."""
    _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {number})


def _end_as(status: int) -> Never:
    """End with a wait status: exit, or die by the signal without a second core file."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def _report(writer: int, kind: bytes, number: int) -> None:
    os.write(writer, kind + number.to_bytes(_RECORD - 1, sys.byteorder))


def _read(reader: int) -> bytes:
    """A report; b"" when P1 is gone. Reports are shorter than PIPE_BUF, so none is torn."""
    record = os.read(reader, _RECORD)
    return record if len(record) == _RECORD else b""


def _is_deserted(writer: int) -> bool:
    """Whether nobody reads the pipe any more: L is gone."""
    poll = select.poll()
    poll.register(writer, 0)
    return bool(poll.poll(0))


def _keep_only(descriptor: int) -> None:
    """Close all others: who reads the agent's output must see its end when the agent closes it, and exec's success."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 1 << 20)


def stopped(child: int) -> int:
    """In the supervisor, on SIGCHLD: the signal by which to follow its child (L, or the agent itself) that was stopped;
    0 when it is not stopped, or no longer.
    """
    try:
        result = os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:
        return 0  # it has ended, and nobody has collected it yet: there is nothing to wait for but that
    return 0 if result is None else int(JOB_STOPS.get(result.si_status, 0))


def suspend(child: int, agent: int, number: int) -> None:
    """Stop the supervisor as its child was stopped (`number`), and when it is continued, continue L and the agent.

    A shell that resumes a job continues the whole process group; the agent may have made one of its own. Where nobody
    could resume it, the agent stays stopped alone, as it does without agentbox.
    """
    if _is_orphaned(os.getpgrp()):
        return
    before = _signal.signal(number, _signal.SIG_DFL)
    try:
        os.kill(os.getpid(), number)
    finally:
        if before is not None:
            _signal.signal(number, before)
    for process in dict.fromkeys((child, agent)):
        try:
            os.kill(process, _signal.SIGCONT)
            if os.getpgid(process) != os.getpgrp():
                os.killpg(os.getpgid(process), _signal.SIGCONT)
        except ProcessLookupError:
            pass


def _is_orphaned(group: int) -> bool:
    """Whether no parent of a member is in another group of the session: the kernel then stops none of them by a job's
    signals (setpgid(2)).
    """
    session = os.getsid(0)
    for member in os.listdir("/proc"):
        try:
            if member.isdigit() and os.getpgid(int(member)) == group:
                parent = int(stat_fields(int(member))[1])
                if parent and os.getpgid(parent) != group and os.getsid(parent) == session:
                    return False
        except OSError:
            pass  # it has ended
    return True
