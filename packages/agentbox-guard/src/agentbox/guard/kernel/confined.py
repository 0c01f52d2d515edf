"""A confined run as the supervisor keeps it: the wall of traps, the name service, the broker, and the agent's own
process.

It is loaded while the agent starts. It wires parts together and decides nothing itself.
"""

from __future__ import annotations

import _socket
import errno
import os
from _socket import EAI_FAIL, gaierror

from agentbox.guard.family import parent_and_group
from agentbox.guard.kernel import netns
from agentbox.guard.kernel.announced import Announced
from agentbox.guard.kernel.scribe import Scribe
from agentbox.guard.kernel.wall import Wall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from agentbox.guard.connections import Processes
    from agentbox.guard.decisions import Desk
    from agentbox.guard.gate import Gate
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.kernel.confine import Taken
    from agentbox.guard.kernel.foreground import Watcher
    from agentbox.guard.kernel.spawner import Program
    from agentbox.guard.loop import Loop
    from agentbox.guard.session import Denial
    from agentbox.guard.supervisor import Run


class Confined:
    """What of a run exists only when kernel layers are live. `start` it on the loop; `finish`, then `close` it."""

    def __init__(
        self,
        run: Run,
        taken: Taken,
        desk: Desk,
        processes: Processes,
        announced: Announced | None,
        jobs: Jobs,
        gate: Gate,
        message: dict[str, Any],
        begin: Callable[[], None],
    ) -> None:
        self.agent = taken.agent
        self._run = run
        self._taken = taken
        self._desk = desk
        self._jobs = jobs
        self._processes = processes
        self._scribe = Scribe(
            run.session,
            processes,
            announced or Announced(),
            desk.private,
            observing=run.session.mode == "observe",
            reads=run.options.read_trace,
            begin=begin,
        )
        self._wall: Wall | None = None
        if taken.listener >= 0:
            self._wall = desk.wall = Wall(taken, run.layers, desk, self._scribe, jobs, gate, message)
            desk.own_loopback = self._wall.box.own_loopback
            desk.own_network = self._wall.own_network
        self._ends: list[Callable[[], None]] = []
        self._sockets: list[_socket.socket] = []
        self._loop: Loop
        self._watcher: Watcher | None = None
        self.interrupted: Callable[[], object] = lambda: None
        """Called for each Ctrl-C that a job of the run gets in place of the supervisor."""
        confinement = run.confinement
        self._spawner = confinement.spawner(self._post) if confinement is not None else None
        desk.start = self._start

    def start(self, loop: Loop, child: int) -> None:
        """Serve from now on; `child` is our own child, which stands for the agent."""
        family = self._desk.family
        family.keepers = (child, parent_and_group(self.agent)[0]) if child != self.agent else ()
        if self._wall is not None and self._spawner is not None:
            self._wall.box.launches.starter = self._spawner.starter
            family.is_kept = self._wall.box.launches.holds
        self._loop = loop
        if self._wall is not None:
            self._wall.box.network = self.serve_network
            self._wall.box.foreground = self._follow
            self._wall.box.askers.heard = self._processes.check
            self._wall.start(loop, loop.drain)

    @property
    def has_started(self) -> bool:
        """Whether the command's own exec has been let through; where nobody is asked, nobody knows."""
        return self._wall is None or self._wall.lineage.started

    def _post(self, call: Callable[[], None]) -> None:
        self._jobs.post(lambda _: call(), None)

    def _start(self, file: str, argv: Sequence[str], environ: Mapping[str, str], cwd: str, ends: list[int]) -> Program:
        """Start a program for an SDK call, confined as the agent is; in a worker thread. Raises `OSError`."""
        if self._spawner is None:
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        return self._spawner.start(file, argv, environ, cwd, ends, self._launched)

    def _launched(self, pid: int, listener: int) -> None:
        if self._wall is not None:
            self._wall.launched(pid, listener)

    def follow_stop(self, child: int) -> None:
        """When the agent was stopped: stop as well, as a shell's job does, and go on with it (on SIGCHLD)."""
        from agentbox.guard.kernel import init

        number = init.stopped(child)
        if number:
            init.suspend(child, self.agent, number)

    def _follow(self, group: int) -> None:
        """Hear of the Ctrl-C of a job that has the terminal. Raises `OSError`."""
        if self._watcher is None:
            from agentbox.guard.kernel.foreground import Watcher

            self._watcher = Watcher(self.agent, self._loop.register, self._loop.forget, lambda: self.interrupted())
        self._watcher.follow(group)

    def stop_starting(self) -> None:
        """The agent is gone, and nobody starts programs any more."""
        if self._watcher is not None:
            self._watcher.end()
        spawner, self._spawner = self._spawner, None
        if spawner is not None:
            spawner.close()

    def finish(self) -> None:
        """Record what is known only at the end: what connections have carried that nobody has closed."""
        for end in self._ends:
            end()
        self._ends = []

    def close(self) -> None:
        """Whoever still waits for an answer fails."""
        self.stop_starting()
        if self._wall is not None:
            self._wall.close()

    def serve_network(self) -> None:
        """Serve names and connections from the first trap that has to do with either: no packet of the run goes without
        one (`kernel.rows`), and most programs of a short run never make a connection.
        """
        loop, wall = self._loop, self._wall
        if wall is None or not self._taken.dns or wall.box.broker is not None:
            return
        from agentbox.guard.kernel.broker import Broker, namespace_cookie
        from agentbox.guard.kernel.dns import DnsStub
        from agentbox.guard.kernel.insiders import sorted_out
        from agentbox.guard.kernel.synthetic import Synthetic
        from agentbox.guard.kernel.traffic import Traffic

        text = _text(netns.RESOLVER_FILE)
        if not self._sockets:  # once, whatever fails below for want of a descriptor
            self._sockets = [_socket.socket(fileno=number) for number in self._taken.dns]
        sockets, insiders = sorted_out(self._sockets)
        synthetic = Synthetic()
        broker = Broker(
            self._desk, synthetic, self._jobs, inside=namespace_cookie(sockets[0].fileno()),
            served=tuple({one.getsockname()[0] for one in sockets}), insiders=insiders,
            observing=self._scribe.observing,
        )  # fmt: skip
        wall.box.broker = broker
        loop.register(broker.fileno(), broker.ready)
        stub = DnsStub(
            synthetic, self._desk.policy, self._look_up, self._told, suffixes=netns.search_domains(text),
            observing=self._scribe.observing,
        )  # fmt: skip
        stub.attach(sockets, loop.register, loop.forget)
        traffic = wall.box.traffic = Traffic()
        if traffic.is_live:
            loop.register(traffic.fileno(), lambda: self._count(traffic.read()))
        self._ends.append(lambda: self._count(traffic.finish()))

    def _look_up(self, name: str, then: Callable[[Any], None]) -> None:
        if not self._scribe.consult(self.agent, "net.resolve", {"host": name}):
            then(gaierror(EAI_FAIL, "refused"))
            return
        self._jobs.run(lambda: self._desk.names.look_up(name), then)

    def _told(self, name: str, denial: Denial | None, addresses: tuple[str, ...]) -> None:
        args: dict[str, Any] = {"host": name}
        if denial is not None:
            self._scribe.deny(self.agent, "net.resolve", args, denial)
        else:
            args["addresses"] = list(addresses)
            self._scribe.observe(self.agent, "net.resolve", args)

    def _count(self, ended: list[Any]) -> None:
        for event, sent, received in ended:
            event.args |= {"sent": sent, "received": received}
            self._scribe.tell(event)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
