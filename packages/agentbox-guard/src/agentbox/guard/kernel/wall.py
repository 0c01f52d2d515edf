"""The supervisor's side of a confined run: takes over what the child hands over, and answers the calls that wait.

One call is taken at a time, on the loop thread, after all that was announced before it. What cannot be decided is
refused; what cannot be recorded ends the run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import fcntl
import os
import struct

from agentbox.guard import shortage
from agentbox.guard.descriptors import Spare
from agentbox.guard.kernel import callnumbers, shm
from agentbox.guard.kernel.judge import Judge
from agentbox.guard.kernel.lineage import OTHER, Lineage
from agentbox.guard.kernel.memory import Memory
from agentbox.guard.kernel.notify import Listener
from agentbox.guard.kernel.process import Askers
from agentbox.guard.kernel.protect import Protection
from agentbox.guard.kernel.reach import Reach
from agentbox.guard.kernel.traps import Box, handler
from agentbox.guard.kernel.traps._base import NEVER, Held
from agentbox.guard.kernel.waits import Waits
from agentbox.guard.kernel.walk import Tree
from agentbox.guard.procfs import started
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.decisions import Desk
    from agentbox.guard.gate import Gate
    from agentbox.guard.hashes import Hashes
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.kernel.confine import Taken
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.scribe import Scribe
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.loop import Loop
    from agentbox.guard.session import Event

SURPRISE = "a thread changed an exec while it was under way"
_MOST_ENDED = 1024
UNDECIDED = "agentbox could not decide it"
_AUTOBOUND = (("0.0.0.0", 0), ("::", 0))
"""Where a datagram socket that sends unbound is bound by itself (inet_autobind of Linux, net/ipv4/af_inet.c)."""


class Wall:
    """The traps of one run. Make it when the child has handed over; then `start` it on the loop."""

    def __init__(
        self,
        taken: Taken,
        names: tuple[str, ...],
        desk: Desk,
        scribe: Scribe,
        jobs: Jobs,
        gate: Gate,
        message: dict[str, Any],
    ) -> None:
        machine = os.uname().machine
        self._arch = callnumbers.AUDIT_ARCH[machine]
        self._names = {number: name for name, number in callnumbers.table(machine).items()}
        self._handlers: dict[int, tuple[Handler, str]] = {}
        self.listener = Listener(taken.listener)
        askers = Askers(taken.fresh_proc)
        netns = "netns" in names
        root = os.open(f"/proc/{taken.agent}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        own_shm = (shm.PLACE, f"/proc/self/fd/{root}{shm.PLACE}") if taken.own_shm else None
        judge = Judge(
            desk,
            readable=message["system"],
            sealed=message["installed"],
            code=message["code"],
            listable=message["listable"],
            protection=Protection(desk.policy, tuple(desk.private.values()), elsewhere=own_shm),
            own_proc=taken.fresh_proc,
        )
        self.lineage = Lineage(taken.agent)
        self.box = Box(
            listener=self.listener,
            memory=Memory(),
            tree=Tree(root, askers, own_shm=taken.own_shm),
            askers=askers,
            judge=judge,
            scribe=scribe,
            desk=desk,
            gate=gate,
            hashes=desk.hashes,
            jobs=jobs,
            lineage=self.lineage,
            adopt=lambda fd, pid: None,
            netns=netns,
            pidns=netns,
            landlock="landlock" in names,
            own_loopback=netns and not message["loopback_ruled"],
        )
        self.box.waits = Waits(self.listener.stands)
        self.box.known.live = not message["scratch"]
        _note_inherited(desk.hashes)
        if self.box.landlock or scribe.observing:  # which tells what would be refused, and leaves Landlock out
            self.box.reaches = Reach(desk.policy, message)
        self.own_processes = netns
        self.own_network = netns
        self._spare = Spare()
        self._listeners: list[Listener] = []
        self._ended: dict[int, int] = {}
        """Processes that were ended, by number, with their start."""
        self._loop: Loop
        self._drain: Callable[[int], None] = lambda pid: None

    def start(self, loop: Loop, drain: Callable[[int], None]) -> None:
        """Answer from now on; `drain(pid)` reads what the process has announced on the channel."""
        self._loop = loop
        self._drain = drain
        self.box.adopt = loop.adopt
        self._listen(self.listener)

    def launched(self, pid: int, listener: int) -> None:
        """The supervisor itself has a program started in the run, as process `pid`: answer that one's filter as
        well.
        """
        self.box.launches.add(listener, pid)
        self._listen(Listener(listener))

    def _listen(self, listener: Listener) -> None:
        self._listeners.append(listener)
        self._loop.register(listener.fd, lambda: self.take(listener), ends=True)

    def is_agent(self, pid: int) -> bool:
        """See `decisions._base.Wall`."""
        return self.lineage.is_agent(pid)

    def start_problem(self, pid: int, file: str, argv: list[str]) -> Denial | None:
        """See `decisions._base.Wall`."""
        from agentbox.guard.kernel.traps._starts import problem, unreached

        return problem(self.box, pid, file, argv) or unreached(self.box, [file], argv)

    def inside(
        self, op: str, address: str, port: int, pid: int, *, datagram: bool = False
    ) -> tuple[Denial | None, str] | None:
        """See `decisions._base.Wall`."""
        if op == "net.bind":
            # So a datagram socket is bound at its first send as well, without a rule (Node and Java bind each client);
            # in the empty network that reaches nobody outside.
            free = self.box.own_loopback or (self.box.netns and datagram and (address, port) in _AUTOBOUND)
            return (None, address) if free else None
        self.box.network()
        broker = self.box.broker
        if broker is None:
            return None
        action, denial, host = broker.judge_address(address, port, pid, datagram=op == "net.send")
        # What goes on inside is refused there by the kernel, as a closed port, and recorded then.
        return None if action == "continue" and op == "net.connect" else denial, host

    def take(self, listener: Listener) -> None:
        """Answer the next call that waits at a filter."""
        call = listener.receive()
        if call is not None:
            self._take(call)

    def _take(self, call: Call) -> None:
        try:
            if self.lineage.waiting and self._is_surprise(call):
                return
            if self._loop.connected:
                self._drain(self.box.askers.process(call.pid))
            self._answer(call)
        except Held as held:
            self._hold(call, held.event)
        except OSError as error:
            if shortage.met(error):
                self._short(call)
            self.listener.fail(call, error.errno or errno.EIO)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
            self._undecided(call, error)

    def _hold(self, call: Call, event: Event) -> None:
        """Have a change wait for the snapshot, and decide it anew then: nothing that was looked at is still certain."""

        def go() -> None:
            if self.listener.stands(call):  # else its asker has gone, and the number may be another's
                self._take(call)

        self.box.scribe.flush()
        self.box.gate.before(event, go, lambda text: self.listener.fail(call, errno.EPERM))

    def _short(self, call: Call) -> None:
        """Record what could not be decided for want of a descriptor. Raises `OSError` where that cannot be done."""
        name = self._names.get(call.number, str(call.number))
        with self._spare:
            pid = self.box.askers.process(call.pid)
            self.box.scribe.deny(pid, "sys.call", {"name": name}, Denial("call", name, shortage.REASON))
            self.box.scribe.flush()

    def _undecided(self, call: Call, error: Exception) -> None:
        """A handler that fails on what a program made up refuses that call, and nothing else of the run."""
        if os.environ.get("AGENTBOX_DEBUG") == "1":
            import traceback

            traceback.print_exception(error)
        name = self._names.get(call.number, str(call.number))
        denial = Denial("call", name, f"{UNDECIDED}: {type(error).__name__}: {error}")
        self.box.scribe.deny(self.box.ids(call).process, "sys.call", {"name": name}, denial)
        self.listener.fail(call, errno.EINVAL)

    def _answer(self, call: Call) -> None:
        found = self._handlers.get(call.number) if call.arch == self._arch else None
        if found is None:
            found = self._first(call)
            if found is None:
                self._foreign(call)
                return
        answer, name = found
        self._loop.lazy = True  # what must be written before an answer is flushed by its handler
        answer(self.box, call, name)

    def _first(self, call: Call) -> tuple[Handler, str] | None:
        """Who answers the first call of its number in this run; None for what no trap is there for."""
        name = self._names.get(call.number) if call.arch == self._arch else None
        answer = handler(name) if name else None
        if name is None or answer is None:
            return None
        found = self._handlers[call.number] = answer, name
        return found

    def _foreign(self, call: Call) -> None:
        """A call of another architecture or numbering (i386, x32): its numbers mean other calls."""
        pid = self.box.ids(call).process
        name = f"call {call.number:#x} of architecture {call.arch:#x}"
        self.box.scribe.deny_once(pid, "sys.call", name, {"name": name}, Denial("call", name, NEVER))
        self.listener.fail(call, errno.ENOSYS)

    def _is_surprise(self, call: Call) -> bool:
        pid = self.box.ids(call).process
        for other in self.lineage.others(pid):
            self._end(other, OTHER)
        reason = self.lineage.surprise(pid, call.pid, lambda: self.listener.stands(call))
        if not reason:
            return False
        self._end(pid, reason)
        self.listener.fail(call, errno.EPERM)
        return True

    def _end(self, pid: int, reason: str) -> None:
        """End a process that has become another program than was decided on, then record what it was, once: it may be
        seen again before it is gone.
        """
        start = started(pid)
        if start and self._ended.get(pid) == start:
            return
        if len(self._ended) >= _MOST_ENDED:
            self._ended.clear()
        self._ended[pid] = start
        try:
            file = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            file = "?"
        try:
            os.kill(pid, _signal.SIGKILL)
        except OSError:
            pass
        self.box.scribe.deny(pid, "proc.exec", {"file": file}, Denial("exec", file, f"{SURPRISE}: {reason}"))
        self.box.scribe.flush()

    def close(self) -> None:
        """Whoever still waits fails."""
        for listener in self._listeners:
            self._loop.forget(listener.fd)
            listener.close()
        self._listeners = []
        self.box.waits.close()
        self.box.judge.terminals.close()
        self.box.tree.close()
        self.lineage.close()


def _note_inherited(hashes: Hashes) -> None:
    """What the agent can write through its standard descriptors, which it has from us, may change at any time."""
    for number in range(3):
        try:
            if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                hashes.written(os.fstat(number))
        except OSError:
            pass  # it is closed
