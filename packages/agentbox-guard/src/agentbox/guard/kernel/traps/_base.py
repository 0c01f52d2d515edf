"""What a trap is: one family of system calls, taken from the kernel's notification to its answer.

A handler decides on the supervisor's own copies only, records before it answers, and answers exactly once. An `OSError`
that it raises is the answer.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.channel import WRITES
from agentbox.guard.kernel.judge import EXEMPT
from agentbox.guard.kernel.launches import Launches
from agentbox.guard.kernel.powers import Lowered
from agentbox.guard.kernel.syscalls import PAGE
from agentbox.guard.session import Denial, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.decisions import Desk
    from agentbox.guard.gate import Gate
    from agentbox.guard.hashes import Hashes
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.kernel.inherited import Inherited
    from agentbox.guard.kernel.judge import Judge
    from agentbox.guard.kernel.lineage import Lineage
    from agentbox.guard.kernel.memory import Memory
    from agentbox.guard.kernel.notify import Call, Listener
    from agentbox.guard.kernel.process import Askers, Ids
    from agentbox.guard.kernel.scribe import Scribe
    from agentbox.guard.kernel.scripts import Scripts
    from agentbox.guard.kernel.waits import Waits
    from agentbox.guard.kernel.walk import Tree

    Handler = Callable[["Box", Call, str], None]
    """Takes the box, the waiting call and the call's name."""

NEVER = "no program of the run may do this, whatever the rules say"
"""The reason of a refusal that no rule can lift."""
AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = 0x100, 0x1000  # <linux/fcntl.h>, Linux 2.6.16 and 2.6.39


KERNELS = (b"/proc/", b"/sys/", b"/dev/")
"""Where the kernel makes files up; it may ask for more than a file's mode at their opening."""


class Held(Exception):
    """Raised by a handler in place of the first change, `event`: the call is to be handled again when there is a
    snapshot.
    """

    def __init__(self, event: Event) -> None:
        super().__init__(event.op)
        self.event = event


class Known(dict[bytes, tuple["int", bool, int, str]]):
    """What was judged of resolved paths, whether that stays so, the kind of file (S_IFMT) and the path as text.

    It forgets everything when it is full; off while the run's tree is not the supervisor's own.
    """

    __slots__ = ("live",)

    def __init__(self) -> None:
        super().__init__()
        self.live = True

    def __setitem__(self, path: bytes, what: tuple[int, bool, int, str]) -> None:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        if self.live and not path.startswith(KERNELS):
            super().__setitem__(path, what)


class Box:
    """What traps work with. `broker` makes connections outside of an empty network namespace, None without one."""

    __slots__ = (
        "acting", "adopt", "askers", "broker", "desk", "foreground", "gate", "hashes", "inherited", "jobs", "judge",
        "known", "landlock", "launches", "lineage", "listener", "lowered", "memory", "netns", "network", "own_loopback",
        "peers", "pidns", "reaches", "scribe", "scripts", "sending", "traffic", "tree", "waits",
    )  # fmt: skip

    def __init__(
        self,
        *,
        listener: Listener,
        memory: Memory,
        tree: Tree,
        askers: Askers,
        judge: Judge,
        scribe: Scribe,
        desk: Desk,
        gate: Gate,
        hashes: Hashes,
        jobs: Jobs,
        lineage: Lineage,
        adopt: Callable[[int, int], None],
        netns: bool,
        pidns: bool,
        landlock: bool,
        own_loopback: bool = False,
        broker: Any = None,
        traffic: Any = None,
    ) -> None:
        self.listener = listener
        self.memory = memory
        self.tree = tree
        self.askers = askers
        self.judge = judge
        self.scribe = scribe
        self.desk = desk
        self.gate = gate
        self.hashes = hashes
        self.jobs = jobs
        self.lineage = lineage
        self.adopt = adopt
        """Takes a connected guard channel and the process that has the other end."""
        self.netns = netns
        self.pidns = pidns
        self.landlock = landlock
        self.own_loopback = own_loopback
        self.broker = broker
        self.traffic = traffic
        self.foreground: Callable[[int], None] = lambda group: None
        """Told the process group that has the terminal from now on."""
        self.network: Callable[[], None] = lambda: None
        """Has `broker` made, where there is to be one."""
        self.known: Known = Known()
        """Regular files and folders that were opened for reading, by their resolved paths."""
        self.reaches: Callable[[str], bool] = lambda file: True
        """Whether the kernel would let the run start a program, as far as Landlock goes."""
        self.inherited: Inherited
        """What the agent had when its program was started."""
        self.scripts: Scripts | None = None
        """Made when the first script is started."""
        self.launches = Launches()
        self.lowered = Lowered()
        self.waits: Waits
        """Whoever waits in a program's name does so by these."""
        self.peers: dict[tuple[int, int], int] = {}
        """Processes, as the run counts them, in whose name a short-lived child has made a connection, by that child's
        number and inode; with 0 for the inode, those of the last child of that number.
        """
        self.acting: set[int] = set()
        """Those children while they are there."""
        self.sending = 0
        """Bytes of programs' messages that are held until they are sent."""

    def ids(self, call: Call) -> Ids:
        """The ids of the asking thread, also when it has ended since they were asked for first. Raises `OSError`
        (ESRCH).
        """
        if call.ids is None:
            call.ids = self.askers.ids(call.pid)
        return call.ids

    def allowed(self, call: Call, op: str, args: dict[str, Any], *judged: int | Denial) -> bool:
        """Record the outcome of all that was `judged` for one act, the refusal first; False if the act is refused.

        Raises `Held`, with nothing recorded, for a change that comes before its snapshot.
        """
        pid = self.ids(call).process
        if not self.gate.is_open and op in WRITES and self._changes(args, judged):
            raise Held(self.scribe.later(pid, op, dict(args)))
        for one in judged:
            if type(one) is not int and self.scribe.deny(pid, op, args, one):  # type: ignore[arg-type]
                return False
        if any(one != EXEMPT for one in judged) and all(type(one) is int for one in judged):
            self.scribe.observe(pid, op, args)
        elif judged and all(type(one) is int for one in judged):
            self.scribe.confirm(pid, op, args)
        return True

    def _changes(self, args: dict[str, Any], judged: tuple[int | Denial, ...]) -> bool:
        """Whether an act is about to change what a snapshot is for: not what is refused, nor the run's own files."""
        if not self.scribe.observing and any(type(one) is not int for one in judged):
            return False
        names = self.scribe.shown({name: args[name] for name in ("path", "to") if name in args}).values()
        return any(one != EXEMPT for one in judged) and not all(name.startswith("$") for name in names)

    def connected(self, answer: Any) -> None:
        """A connection made outside is about to be handed over: count its bytes from now on."""
        if self.traffic is not None:
            self.traffic.watch(answer.socket, self.scribe.later(answer.request.pid, "net.close", dict(answer.args)))

    def write(self, call: Call, address: int, data: bytes) -> None:
        """Put an answer where the program asked for it, unless it has gone: its number may be another's by now.

        Raises `OSError` (EFAULT, ESRCH).
        """
        if not self.listener.stands(call):
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        for at in range(0, len(data), PAGE):
            self.memory.write(call.pid, address + at, data[at : at + PAGE])

    def duplicate(self, call: Call, number: int) -> int:
        """A duplicate of the asker's descriptor. Raises `OSError` (EBADF, ESRCH)."""
        return self.askers.duplicate(call.pid, number)


_MOST_KNOWN = 20_000


def refused() -> OSError:
    """The error that a denied program sees."""
    return OSError(errno.EACCES, os.strerror(errno.EACCES))


def number(argument: int) -> int:
    """An argument of type int: its low half, signed."""
    low = argument & 0xFFFFFFFF
    return low - (1 << 32) if low & 0x80000000 else low
