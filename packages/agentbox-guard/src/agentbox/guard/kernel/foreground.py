"""Ctrl-C while a job of the run has the terminal: the kernel sends SIGINT to the foreground process group alone, which
the supervisor is then not in (tty(4), tcsetpgrp(3)).

A child of the supervisor joins that group and tells of each SIGINT that comes from the terminal. It does nothing else,
and no signal of the run's changes that: it ignores what can be ignored.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os

from agentbox.guard.family import AWAITED
from agentbox.guard.kernel import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT = (_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGINT)
_HIGHEST = 1 << 20


class Watcher:
    """The child, while a job has the terminal and the process `agent` lives. `register` has the loop call back when a
    descriptor is readable, and `forget` undoes that; `heard` is called on the loop for each Ctrl-C.
    """

    __slots__ = ("_agent", "_child", "_forget", "_heard", "_pipe", "_register")

    def __init__(
        self,
        agent: int,
        register: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
        heard: Callable[[], object],
    ) -> None:
        self._register = register
        self._forget = forget
        self._heard = heard
        self._child = 0
        self._pipe = -1
        self._agent = os.pidfd_open(agent)
        # The child's group is one of the run's process namespace, which cannot end before that is empty
        # (zap_pid_ns_processes() of kernel/pid_namespace.c).
        register(self._agent, self.end)

    def follow(self, group: int) -> None:
        """Listen in another foreground group; in the supervisor's own nobody needs to. Raises `OSError`."""
        self.close()
        if group == os.getpgrp() or self._agent < 0:
            return
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)  # what the loop saw of a descriptor may be of an earlier one of that number
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                _listen(parent, group, theirs)
            finally:
                os._exit(1)
        AWAITED.add(child)
        os.close(theirs)
        self._child, self._pipe = child, ours
        self._register(ours, self._read)

    def end(self) -> None:
        """Follow no more: the agent has ended."""
        self.close()
        agent, self._agent = self._agent, -1
        if agent >= 0:
            self._forget(agent)
            os.close(agent)

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, 0
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            self._forget(pipe)
            os.close(pipe)
        if child:
            os.kill(child, _signal.SIGKILL)
            os.waitpid(child, 0)
            AWAITED.discard(child)

    def _read(self) -> None:
        try:
            told = os.read(self._pipe, 64)
        except BlockingIOError:
            return
        if not told:  # somebody has ended the child
            self.close()
        for _ in told:
            self._heard()


def _listen(parent: int, group: int, pipe: int) -> None:
    """The child: write a byte for each SIGINT of the kernel's, until its parent ends. Raises `OSError`."""
    os.dup2(pipe, 0)
    os.closerange(1, _HIGHEST)  # what the supervisor closes must be closed: others wait for that
    for number in _signal.valid_signals():
        if number not in _KEPT:
            try:
                _signal.signal(number, _signal.SIG_IGN)
            except (OSError, ValueError):
                pass  # of the C library's own
    _signal.pthread_sigmask(_signal.SIG_SETMASK, (_signal.SIGINT,))
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _signal.SIGKILL)
    os.setpgid(0, group)
    while os.getppid() == parent:
        if _signal.sigwaitinfo((_signal.SIGINT,)).si_code > 0:  # the kernel's, and so the terminal's (sigaction(2))
            os.write(0, b"\0")
