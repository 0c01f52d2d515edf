"""Signals of the supervisor: held back from before the fork, then taken by one thread that can see who sent them.

A signal never interrupts the loop and never ends the supervisor; what the terminal sent has reached the agent by
itself. SIGCONT goes on even while it is held back (signal(7)), and is the agent's too: that may have stopped alone.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
from _thread import start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HELD = frozenset({
    _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCHLD,
    _signal.SIGCONT,
})  # fmt: skip
ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)
"""By these somebody asks for the end."""
_WAKE = _signal.SIGUSR2


class Signals:
    """Holds the signals back when made; `restore` puts the caller's mask back. Make it on the main thread, before there
    is anything that a signal could leave behind.
    """

    __slots__ = ("_ended", "_thread", "mask")

    def __init__(self) -> None:
        # An ignored SIGCHLD, inherited from whoever started us, would take the agent's exit status away (wait(2)).
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        self.mask = frozenset(_signal.pthread_sigmask(_signal.SIG_BLOCK, HELD))
        self._thread: int | None = None
        self._ended = False

    @staticmethod
    def asked() -> int:
        """The signal by which somebody has asked for the end before there is an agent to pass it on to; 0 for none.

        It is used up. What this process ignores, as SIGHUP under nohup, waits like any other while it is held.
        """
        for number in sorted(_signal.sigpending() & set(ENDING)):
            if _signal.getsignal(number) != _signal.SIG_IGN:
                return int(_signal.sigwait((number,)))
        return 0

    def listen(self, deliver: Callable[[int, bool], None]) -> None:
        """Start the thread; `deliver(number, forward)` is called on it, `forward` false if the agent has had the signal
        already.
        """
        self._thread = start_new_thread(self._wait, (deliver,))

    def _wait(self, deliver: Callable[[int, bool], None]) -> None:
        own = _own_pid()
        while True:
            if hasattr(_signal, "sigwaitinfo"):
                info = _signal.sigwaitinfo(HELD)
                number, by_kernel, sender = info.si_signo, info.si_code > 0, info.si_pid
            else:  # macOS tells nothing of the sender; what comes to a foreground group is taken for the terminal's
                number, by_kernel, sender = _signal.sigwait(HELD), _in_foreground(), 0
            if self._ended and number == _WAKE and sender in (0, own):
                return
            # sigaction(2): a positive si_code is the kernel's: here the terminal, which signals the whole process
            # group.
            deliver(number, number != _signal.SIGCHLD and not by_kernel)

    def restore(self) -> None:
        """End the thread and put the mask back as it was."""
        if self._thread is not None:
            self._ended = True
            _signal.pthread_kill(self._thread, _WAKE)
            self._thread = None
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.mask)


def _own_pid() -> int:
    import os

    return os.getpid()


def _in_foreground() -> bool:
    import os

    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(descriptor)
