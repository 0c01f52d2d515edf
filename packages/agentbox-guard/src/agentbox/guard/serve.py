"""A started run to its end: serves the agent, forwards signals, ends what is left over, and has the session close the
record.

It is imported after the fork. A failure of anything ends every process of the run first and is said in one line after;
nothing goes on unrecorded.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

from agentbox.guard import arguments, descriptors, launch, welcome
from agentbox.guard import family as families
from agentbox.guard.command import Command
from agentbox.guard.connections import Processes
from agentbox.guard.decisions import Desk
from agentbox.guard.dispatch import Dispatcher
from agentbox.guard.errors import GuardFailed
from agentbox.guard.failures import explain, tell
from agentbox.guard.family import Family
from agentbox.guard.gate import Gate
from agentbox.guard.hashes import Hashes
from agentbox.guard.header import header
from agentbox.guard.jobs import Jobs
from agentbox.guard.loop import Loop
from agentbox.guard.names import Names
from agentbox.guard.notes import notes
from agentbox.guard.record import RecordSession
from agentbox.guard.session import Ended, EndRun, Event
from agentbox.guard.signals import ENDING
from agentbox.policy.forms.path import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from typing import Any

    from agentbox.guard.checkpoint import Checkpoint
    from agentbox.guard.failures import Failure
    from agentbox.guard.kernel.announced import Announced
    from agentbox.guard.kernel.confined import Confined
    from agentbox.guard.launch import Child
    from agentbox.guard.session import Session
    from agentbox.guard.supervisor import Run

HELLO_TIMEOUT = 30.0
"""Seconds that the agent's guard gets to come up; a loaded machine with a cold disk needs a few."""
_TICK = 1.0
_LAST_WORDS = 1.0  # seconds in which processes that outlive the agent may still be heard before they are ended
_GRACE = 0.1  # seconds in which they may end by themselves
_GRACES = 10  # how often those get it that are at work, or wait for a processor
_SAME_SIGNAL = 0.2  # seconds
_TWICE = 3.0  # seconds between two Ctrl-C that end the run, whatever the agent does about them
_LAST_JOBS = 5.0  # seconds that effects under way get to be recorded when the agent is gone


def conduct(run: Run, child: Child, report: int, listener: Socket, session: Session | None) -> int:
    """Serve the agent that was just forked; returns the exit status of the whole command.

    Without a `session` the trace is opened here, while the agent's interpreter boots: no user code runs before the
    guard is welcomed. Raises what the opening raises, the agent ended.
    """
    options = run.options
    family = Family(child.pid)
    families.adopt_orphans()
    try:
        run.session = session or RecordSession(options, run.environ)
        if isinstance(run.session, RecordSession):
            for line in notes(run):
                options.note(f"note: {shown(line)}")
    except BaseException:
        family.end([], lambda: None)
        raise
    service = None
    try:
        service = Service(run, child, family, listener)
        service.confirm(report, options.argv[0])
        ended = service.serve()
    except Exception as error:
        if service is not None:
            service.agent_is_gone()
        family.end(service.loop.pids if service else [], lambda: None)
        failure = explain(error, layers=bool(run.layers))
        if service is not None and not failure.trace_lost:
            service.begin()
        tell(run.options.say, failure)
        ended = Ended(failure.status, duration=_age(run), failure=failure.text.partition("\n")[0])
        if service is not None:
            ended.hurry = service.hurry
        status = _close(run, ended, failure)
    else:
        if ended.failure:
            options.say(ended.failure)
        status = _close(run, ended, None)
    finally:
        if service is not None:
            service.close()
    run.rundir.sweep()
    return status


def _close(run: Run, ended: Ended, failure: Failure | None) -> int:
    if failure is not None and failure.trace_lost:
        run.options.say(f"{run.options.trace}: holds what happened before that, and no seal")
        return failure.status
    try:
        status = run.session.finish(ended)
    except Exception as error:
        failure = explain(error, layers=bool(run.layers))
        tell(run.options.say, failure)
        return failure.status
    return status if failure is None else failure.status


def _age(run: Run) -> float:
    return time.monotonic() - run.started


class Service:
    """The supervisor while the agent lives: loop, decisions, effects, signals."""

    def __init__(self, run: Run, child: Child, family: Family, listener: Socket) -> None:
        options = run.options
        self._run = run
        self._child = child
        self._family = family
        self._jobs = Jobs()
        if "netns" in run.layers and run.confinement is not None:
            run.own_shm = run.confinement.hand_over.own_shm()
        elif options.scratch is not None:
            run.own_shm = options.scratch.own_shm
        checkpoint = _checkpoint(run)
        ask = run.session.ask if checkpoint is None or run.session.ask == "all" else "writes"
        message = welcome.members(
            run, mode=run.session.mode, ask=ask, extra_sealed=checkpoint.sealed if checkpoint is not None else ()
        )
        hashes = Hashes()
        self._command: Command | None = None
        if run.session.mode != "replay" and not run.nested:  # which start nothing that is not in a record already
            self._command = Command(run.how.file, run.how.argv, options.cwd, hashes, self._jobs)
        desk = Desk(
            options.policy,
            cwd=options.cwd,
            environ=run.environ,
            private=run.private,
            channel=run.rundir.channel,
            hidden=message["hidden"],
            sealed=message["sealed"],
            readable=message["readable"],
            family=family,
            names=Names(options.policy),
            hashes=hashes,
            runtimes=options.runtimes,
        )
        desk.own_loopback = options.scratch is not None and options.scratch.own_loopback
        desk.own_network = options.scratch is not None and options.scratch.own_network
        self._desk = desk
        self._message = message
        self._processes = Processes()
        self._confined: Confined | None = None
        self._announced = _announced() if run.confinement is not None else None
        if self._announced is not None:
            self._processes.gone = self._announced.forget
        self._gate = Gate(checkpoint, run.session, self._jobs)
        self._starts_held = checkpoint is not None and not run.how.arms
        """Whether the command has to wait for a snapshot: it may change anything, and no guard tells."""
        self._dispatcher = Dispatcher(
            run.session,
            desk,
            self._processes,
            self._jobs,
            self._gate,
            welcome={name: message[name] for name in welcome.WELCOME if name in message},
            start=self._start_record,
            announced=self._announced,
            say=run.options.say,
        )
        self._closed_at = 0.0
        self._hurried = False
        self._looks_after = False
        self._interrupted_at = 0.0
        self._asked = 0
        """The signal by which somebody has asked for the end while the agent lived."""
        self.loop = Loop(listener, self._jobs, self._dispatcher, child.pidfd)
        self._dispatcher.answer = self.loop.answer

    def _start_record(self) -> None:
        if self._command is not None and not self._starts_held:
            self._command.begin(self._started)

    def _started(self, args: dict[str, Any]) -> None:
        process = self._processes.seen(self._agent)
        lane = f"{process.number}.0"
        args = arguments.recorded(args)
        self._run.session.process(Event("proc.exec", args, lane=lane, pid=process.pid, src="supervisor"))

    def confirm(self, report: int, name: str) -> None:
        """Take the confined child over and wait for its exec, which is answered here. Raises as `launch.confirm`."""
        try:
            self._write_header()
            self._confirm(report, name)
        except BaseException:
            self._command = None  # it was not started
            raise

    def _write_header(self) -> None:
        """Write the first entry while the child gets ready: no code of the agent's runs before that. Raises
        `TraceError` on a full disk.
        """
        self._run.session.start(header(self._run))
        self._run.session.flush()

    def _confirm(self, report: int, name: str) -> None:
        confinement = self._run.confinement
        if confinement is None:
            launch.confirm(self._child, report, name)
            return
        from agentbox.guard.kernel.confined import Confined  # loaded while the child prepares itself

        taken = confinement.hand_over.take()
        if taken is None:
            launch.confirm(self._child, report, name)
            self._check_ended(name)
            return
        try:
            self._confined = Confined(
                self._run,
                taken,
                self._desk,
                self._processes,
                self._announced,
                self._jobs,
                self._gate,
                self._message,
                self._dispatcher.begin,
            )
        except (FileNotFoundError, ProcessLookupError):  # in /proc: who has just handed over has ended
            self._await_end()
            if not self.loop.ended:
                raise
            self._check_ended(name)
            return
        self._confined.interrupted = self._interrupted
        self._confined.start(self.loop, self._child.pid)
        if self._starts_held:
            self._snapshot_first(name)
        confinement.hand_over.release()
        told: list[bytes] = []
        self.loop.register(report, lambda: told.append(os.read(report, 4096)))
        while not self.loop.ended and b"" not in told:
            self.loop.turn(None)
        self.loop.forget(report)
        os.close(report)
        launch.judge(self._child, b"".join(told), name)
        if not self._confined.has_started:
            self._check_ended(name)

    def _snapshot_first(self, name: str) -> None:
        """Have the snapshot taken while the child waits. Raises `CheckpointError`, or `EndRun` when a signal comes."""
        from agentbox.guard.checkpoint import CheckpointError

        self._dispatcher.begin()
        lane = f"{self._processes.seen(self._agent).number}.0"
        outcome: list[str] = []
        event = Event("proc.exec", {}, lane=lane, pid=self._agent, src="supervisor")
        self._gate.before(event, lambda: outcome.append(""), outcome.append)
        while not outcome:
            self.loop.turn(_TICK)
            if asked := self._run.signals.asked():
                raise EndRun(128 + asked, f"{name}: was not started: a signal came before its checkpoint was taken")
        if outcome[0]:
            raise CheckpointError(f"{name}: was not started: {outcome[0]}")
        self._starts_held = False
        if self._command is not None:
            self._command.begin(self._started)

    def _await_end(self) -> None:
        """Give our child a moment to follow the one that it stands for."""
        deadline = time.monotonic() + _TICK
        while not self.loop.ended and time.monotonic() < deadline:
            self.loop.turn(deadline - time.monotonic())

    def _check_ended(self, name: str) -> None:
        """The child has ended before the command's exec: raise `GuardFailed`, unless the user has ended it."""
        ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        killed = ended is not None and ended.si_code != os.CLD_EXITED
        if ended is None or (killed and ended.si_status in ENDING):
            return
        os.waitpid(self._child.pid, 0)
        how = f"{'by signal' if killed else 'with status'} {ended.si_status}"
        hint = "can /dev/null be opened for reading and writing? agentbox doctor tries each layer"
        if killed and ended.si_status == _signal.SIGKILL:
            hint = "somebody killed it, or the system did for lack of memory"
        raise GuardFailed(f"{name}: was not started: what prepares its confinement ended first, {how}", hint)

    @property
    def _agent(self) -> int:
        """The agent's process, as we number it."""
        return self._confined.agent if self._confined is not None else self._child.pid

    def serve(self) -> Ended:
        """Until the agent's main process has ended and all that it left behind. Raises what ends a run early."""
        self._run.signals.listen(self._signal)
        self._wait_for_guard()
        self.begin()
        while not self.loop.ended:
            self.loop.turn(None)
        _, status = os.waitpid(self._child.pid, 0)
        self.agent_is_gone()
        self._dispatcher.begin()
        if self._command is not None:
            self._command.finish()
        self._settle()
        self._dispatcher.finish()
        if blocked := self._gate.summary():
            self._run.options.say(blocked)
        return self._ended(os.waitstatus_to_exitcode(status))

    def begin(self) -> None:
        """Start the session, get ready for many connections: nothing that the first hello should have to wait for."""
        self._dispatcher.begin()
        if not self._closed_at:
            descriptors.keep()  # every question of a guard is a connection

    def close(self) -> None:
        """Close the channel, and with it whatever still waits for an answer."""
        if self._confined is not None:
            self._confined.close()
        self.loop.close()
        self._jobs.close()

    def _wait_for_guard(self) -> None:
        if not self._run.how.arms:
            return
        left = HELLO_TIMEOUT
        while not self.loop.ended and not self._processes.is_armed(self._agent):
            left -= self._turn(_TICK)
            if self._dispatcher.greeted:
                self.begin()
            if left <= 0:
                raise GuardFailed(
                    f"the guard did not come up in the agent within {HELLO_TIMEOUT:g} seconds; the agent was ended"
                )

    def _turn(self, seconds: float) -> float:
        """One turn of the loop, and what it counts: `seconds` at most, so that a run that was stopped (Ctrl-Z), or with
        its whole machine, does not run out of time.
        """
        before = time.monotonic()
        self.loop.turn(seconds)
        return min(time.monotonic() - before, seconds)

    def _settle(self) -> None:
        """Hear what was sent, end what outlives the agent, and let effects that are under way be recorded."""
        if self._confined is not None and not self._jobs.running:
            self._confined.stop_starting()
        self._listen_until_quiet(_LAST_WORDS)
        self._wait_for_helpers()
        left = self._family.end(self.loop.pids, lambda: self._listen_until_quiet(0))
        if left:
            self._run.options.note(f"ended {left} process{'es' if left > 1 else ''} that outlived the agent")
        deadline = time.monotonic() + _LAST_JOBS
        while self._jobs.running and time.monotonic() < deadline:
            self.loop.turn(0.05)
            for child in self._family.children():  # a program that an effect was just about to start
                self._family.end_tree(child)
        self._listen_until_quiet(_LAST_WORDS)
        if self._confined is not None:
            self._confined.finish()

    def _wait_for_helpers(self) -> None:
        """Let end what ends by itself once the agent is gone: multiprocessing's resource tracker takes a few ms."""
        for _ in range(_GRACES):
            left = _GRACE
            while self._family.children() and left > 0:
                left -= self._turn(_GRACE / 5)  # SIGCHLD wakes it, and `_child_ended` collects
            if not self._family.is_at_work():
                return

    def _listen_until_quiet(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while self.loop.turn(0) and time.monotonic() < deadline:
            pass

    def _ended(self, code: int) -> Ended:
        number = max(-code, 0)
        status = 128 + number if number else code
        failure = ""
        if self._run.how.arms and not self._processes.is_armed(self._agent):
            how = f"by signal {number}" if number else f"with status {code}"
            failure = f"the guard was never live: the agent's process ended {how} before any of its code could run"
            if not number:  # an interpreter that meets Ctrl-C while it starts ends with 1
                status = 128 + self._asked if self._asked and code else GuardFailed.status
        return Ended(status, signal=number, duration=_age(self._run), failure=failure, hurry=self.hurry)

    def agent_is_gone(self) -> None:
        """From now on a signal is meant for us, and what was kept for the end is there for it."""
        descriptors.release()
        self._closed_at = time.monotonic()

    def hurry(self) -> bool:
        """True once the user has asked for the end while the record is being closed: then what may be left out is."""
        return self._hurried

    def _signal(self, number: int, forward: bool) -> None:
        """On the signal thread: pass on to the agent what was meant for it; have the loop look after children."""
        if number in ENDING and not self._closed_at:
            self._asked = number
        if number == _signal.SIGINT and not self._closed_at:
            self._jobs.post(lambda _: self._interrupted(), None)
        if number == _signal.SIGCHLD:
            if not self._looks_after:  # one look is enough for all that have ended, however many those are
                self._looks_after = True
                self._jobs.post(self._child_ended, None)
        elif self._closed_at:
            # What ended the agent (Ctrl-C goes to both) may come a moment late; it is no wish to hurry.
            self._hurried = self._hurried or (number in ENDING and time.monotonic() > self._closed_at + _SAME_SIGNAL)
        elif forward:
            try:
                if self._confined is not None:
                    os.kill(self._agent, number)
                elif self._child.pidfd >= 0:
                    _signal.pidfd_send_signal(self._child.pidfd, number)
                else:
                    os.kill(self._child.pid, number)
            except ProcessLookupError:
                pass

    def _interrupted(self) -> None:
        """On the loop: end the run at the second of two Ctrl-C. Raises `EndRun`."""
        before, self._interrupted_at = self._interrupted_at, time.monotonic()
        if before and self._interrupted_at - before < _TWICE and not self._closed_at:
            raise EndRun(128 + _signal.SIGINT, "interrupted twice: the run was ended")

    def _child_ended(self, _: None) -> None:
        self._looks_after = False
        if self._child.pidfd < 0 and not self.loop.ended:
            self.loop.ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if self._confined is not None and not self.loop.ended:
            self._confined.follow_stop(self._child.pid)
        if not self._jobs.working:
            self._family.reap()


def _checkpoint(run: Run) -> Checkpoint | None:
    if not run.options.checkpoint:
        return None
    from agentbox.guard.checkpoint import Checkpoint

    return Checkpoint(
        run.options.cwd,
        run.options.say,
        run_id=os.path.basename(run.rundir.path).rpartition("-")[2],
        environ=run.options.environ,
        keep=welcome.trace_files(run.options),
    )


def _announced() -> Announced:
    """Loaded where there are kernel layers to show what was announced."""
    from agentbox.guard.kernel.announced import Announced

    return Announced()
