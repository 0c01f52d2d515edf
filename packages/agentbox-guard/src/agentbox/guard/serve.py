"""A started run to its end: serves the agent, forwards signals, ends what is left over, and has the session close the
record.

It is imported after the fork. A failure of anything ends every process of the run first and is said in one line after;
nothing goes on unrecorded.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import resource
import sys
import time

from agentbox.guard import arguments, kernel, launch, welcome
from agentbox.guard import family as families
from agentbox.guard.command import Command
from agentbox.guard.connections import Processes
from agentbox.guard.decisions import Desk
from agentbox.guard.dispatch import Dispatcher
from agentbox.guard.errors import GuardError, GuardFailed
from agentbox.guard.family import Family
from agentbox.guard.gate import Gate
from agentbox.guard.hashes import Hashes
from agentbox.guard.jobs import Jobs
from agentbox.guard.loop import Loop
from agentbox.guard.names import Names
from agentbox.guard.notes import notes
from agentbox.guard.record import RecordSession
from agentbox.guard.session import Ended, EndRun, Event
from agentbox.policy.forms.path import shown
from agentbox.trace import TraceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from typing import Any

    from agentbox.guard.checkpoint import Checkpoint
    from agentbox.guard.kernel.announced import Announced
    from agentbox.guard.kernel.confined import Confined
    from agentbox.guard.launch import Child
    from agentbox.guard.session import Session
    from agentbox.guard.supervisor import Run

VERSION = "0.1.0"
HELLO_TIMEOUT = 30.0
"""Seconds that the agent's guard gets to come up; a loaded machine with a cold disk needs a few."""
TRACE_LOST = 74
OUTER = "outer run"
"""What stands in a header for the layers of a run that is inside another."""
_TICK = 1.0
_LAST_WORDS = 1.0  # seconds in which processes that outlive the agent may still be heard before they are ended
_GRACE = 0.1  # seconds in which they may end by themselves
_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)
_SAME_SIGNAL = 0.2  # seconds
_LAST_JOBS = 5.0  # seconds that effects under way get to be recorded when the agent is gone


class Failure(Exception):
    """The run had to be ended: what the user reads, the exit status, and whether the trace can still be written."""

    def __init__(self, text: str, status: int, *, hint: str = "", trace_lost: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.hint = hint
        self.trace_lost = trace_lost


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
        failure = explain(error)
        if service is not None:
            service.agent_is_gone()
        family.end(service.loop.pids if service else [], lambda: None)
        if service is not None and not failure.trace_lost:
            service.begin()
        _tell(run, failure)
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
        failure = explain(error)
        _tell(run, failure)
        return failure.status
    return status if failure is None else failure.status


def _tell(run: Run, failure: Failure) -> None:
    for line in failure.text.splitlines():
        run.options.say(line)
    if failure.hint:
        run.options.say(f"hint: {failure.hint}")


def explain(error: Exception) -> Failure:
    """What an exception means for the user; the traceback of a defect is shown only with AGENTBOX_DEBUG=1."""
    if os.environ.get("AGENTBOX_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, EndRun):
        return Failure(error.report, error.status)
    if isinstance(error, TraceError) and error.code == "moved":
        return Failure(str(error), TRACE_LOST, hint=error.hint)
    if isinstance(error, TraceError):
        text = f"{error}; the agent was ended, because nothing may happen unrecorded"
        lost = error.code in ("full", "io", "changed")
        return Failure(text, TRACE_LOST if lost else GuardFailed.status, hint=error.hint, trace_lost=lost)
    if isinstance(error, GuardError):
        return Failure(str(error), error.status, hint=error.hint)
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f"{os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where is not None else "?"
    return Failure(
        f"internal error at {place}: {type(error).__name__}: {error}; the agent was ended",
        GuardFailed.status,
        hint="a defect in agentbox; AGENTBOX_DEBUG=1 shows the traceback to report",
    )


def header(run: Run) -> dict[str, Any]:
    """The args of `run.start`."""
    options, policy = run.options, run.options.policy
    machine = os.uname()
    return {
        "run": os.path.basename(run.rundir.path).rpartition("-")[2],
        "argv": options.argv,
        "cwd": options.cwd,
        "mode": run.session.mode,
        "runtime": run.how.runtime,
        "policy": policy.text,
        "policy_name": policy.name,
        "policy_sha256": policy.sha256,
        "layers": [OUTER] if run.nested else [*(("guard",) if run.how.arms else ()), *run.layers],
        "enforced_by": _enforced_by(run),
        "env": sorted(run.environ),
        "hash_seed": run.hash_seed,
        "versions": {"agentbox": VERSION, "python": ".".join(map(str, sys.version_info[:3]))},
        "platform": f"{machine.sysname} {machine.release} {machine.machine}",
    }


def _enforced_by(run: Run) -> dict[str, list[str]]:
    found = kernel.enforcement(run.layers, welcome.GUARDED_KINDS)
    if run.nested:
        return {kind: [OUTER] for kind in found}
    if run.session.mode == "observe":  # but for the environment, which the launcher builds before
        return {kind: parts if kind == "env" else [] for kind, parts in found.items()}
    return found


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
        )
        self._closed_at = 0.0
        self._hurried = False
        self.loop = Loop(listener, self._jobs, self._dispatcher, child.pidfd)
        self._dispatcher.answer = self.loop.answer

    def _start_record(self) -> None:
        self._run.session.start(header(self._run))
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
            self._confirm(report, name)
        except BaseException:
            self._command = None  # it was not started
            raise

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
            if ending := sorted(_signal.sigpending() & set(_ENDING)):
                raise EndRun(128 + ending[0], f"{name}: was not started: a signal came before its checkpoint was taken")
        if outcome[0]:
            raise CheckpointError(f"{name}: was not started: {outcome[0]}")
        self._starts_held = False
        if self._command is not None:
            self._command.begin(self._started)

    def _check_ended(self, name: str) -> None:
        """The child has ended before the command's exec: raise `GuardFailed`, unless the user has ended it."""
        ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        killed = ended is not None and ended.si_code != os.CLD_EXITED
        if ended is None or (killed and ended.si_status in _ENDING):
            return
        os.waitpid(self._child.pid, 0)
        how = f"{'by signal' if killed else 'with status'} {ended.si_status}"
        raise GuardFailed(
            f"{name}: was not started: what prepares its confinement ended first, {how}",
            "can /dev/null be opened for reading and writing? agentbox doctor tries each layer",
        )

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
        if blocked := self._gate.summary():
            self._run.options.say(blocked)
        return self._ended(os.waitstatus_to_exitcode(status))

    def begin(self) -> None:
        """Start the session, get ready for many connections: nothing that the first hello should have to wait for."""
        self._dispatcher.begin()
        _raise_descriptor_limit()

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
            before = time.monotonic()
            self.loop.turn(_TICK)
            if self._dispatcher.greeted:
                self.begin()
            # A turn counts for a tick at most, so that a run that was stopped (Ctrl-Z) does not run out of time.
            left -= min(time.monotonic() - before, _TICK)
            if left <= 0:
                raise GuardFailed(
                    f"the guard did not come up in the agent within {HELLO_TIMEOUT:g} seconds; the agent was ended"
                )

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
        deadline = time.monotonic() + _GRACE
        while self._family.children() and (left := deadline - time.monotonic()) > 0:
            self.loop.turn(left)  # SIGCHLD wakes it, and `_child_ended` collects

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
            status = status if number else GuardFailed.status
        return Ended(status, signal=number, duration=_age(self._run), failure=failure, hurry=self.hurry)

    def agent_is_gone(self) -> None:
        """From now on a signal is meant for us."""
        self._closed_at = time.monotonic()

    def hurry(self) -> bool:
        """True once the user has asked for the end while the record is being closed: then what may be left out is."""
        return self._hurried

    def _signal(self, number: int, forward: bool) -> None:
        """On the signal thread: pass on to the agent what was meant for it; have the loop look after children."""
        if number == _signal.SIGCHLD:
            self._jobs.post(self._child_ended, None)
        elif self._closed_at:
            # What ended the agent (Ctrl-C goes to both) may come a moment late; it is no wish to hurry.
            self._hurried = self._hurried or (number in _ENDING and time.monotonic() > self._closed_at + _SAME_SIGNAL)
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

    def _child_ended(self, _: None) -> None:
        if self._child.pidfd < 0 and not self.loop.ended:
            self.loop.ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if self._confined is not None and not self.loop.ended:
            self._confined.follow_stop(self._child.pid)
        if not self._jobs.running:
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


def _raise_descriptor_limit() -> None:
    """As many descriptors as allowed: every question of a guard is a connection. The agent, already started, keeps its
    own limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass


def _announced() -> Announced:
    """Loaded where there are kernel layers to show what was announced."""
    from agentbox.guard.kernel.announced import Announced

    return Announced()
