"""`run`: makes a run ready and starts the agent, then hands over to `serve`, and leaves nothing of the run behind.

Only what the start needs is imported before the agent is forked; everything else loads while the agent's interpreter
boots.
"""

from __future__ import annotations

import os
import sys
import time

from agentbox.guard import environ as environment
from agentbox.guard import kernel, launch, roots, runtimes
from agentbox.guard.errors import OutdatedInterpreter, Unconfinable, Unguarded
from agentbox.guard.paths import within
from agentbox.guard.rundir import RunDir
from agentbox.guard.runtimes.native import NATIVE
from agentbox.guard.runtimes.python import homes, python_script
from agentbox.guard.signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Iterable, Mapping

    from agentbox.guard.kernel.confine import Confinement
    from agentbox.guard.kernel.grounds import Grounds
    from agentbox.guard.options import RunOptions
    from agentbox.guard.runtimes._base import Launch
    from agentbox.guard.session import Session

    SessionFactory = Callable[[RunOptions, RunDir], Session]

_FEWEST_DESCRIPTORS = 64
"""Open files that a run needs itself, with all layers about 30, before the agent has a single connection."""


class Run:
    """One run that is ready to start: what was asked, how the command is started, its folder, session, environment and
    layers. `nested`: another run holds this one, and decides and records what its processes do.
    """

    __slots__ = (
        "confinement", "environ", "grounds", "hash_seed", "how", "layers", "nested", "options", "own_shm", "rundir",
        "session", "signals", "started", "variables",
    )  # fmt: skip

    def __init__(
        self, options: RunOptions, how: Launch, layers: tuple[str, ...], rundir: RunDir, *, nested: bool = False
    ) -> None:
        self.options = options
        self.how = how
        self.layers = layers
        self.nested = nested
        self.rundir = rundir
        base = _base(options)
        self.hash_seed = _hash_seed(options, base)
        self.variables = {
            **runtimes.variables(how.runtime, options.runtimes, self.hash_seed),
            "AGENTBOX_CHANNEL": rundir.channel,
        }
        if nested:  # the guards inside are the outer run's, and answer to its supervisor
            self.variables = {name: os.environ[name] for name in self.variables if name in os.environ}
        """What every process of the run must carry."""
        self.environ = environment.build(options.policy, base, rundir.private, self.variables)
        self.environ.update(how.extra)  # an `env NAME=VALUE` in front of the command; it cannot name a guard's variable
        self.confinement: Confinement | None = None
        self.grounds: Grounds | None = None
        self.own_shm = False
        """Whether the run's /dev/shm is its own, which is known once its agent is in its namespaces."""
        self.session: Session
        self.signals: Signals
        self.started = time.monotonic()

    @property
    def private(self) -> dict[str, str]:
        """The trees that every program of the run may use freely, by the names that the trace has for them."""
        if not self.own_shm:
            return self.rundir.private
        from agentbox.guard.kernel import shm

        return {**self.rundir.private, shm.NAME: shm.PLACE}


def run(options: RunOptions, session_factory: SessionFactory | None = None) -> int:
    """Run a command confined, record it (or do what another session does), return the exit status of the whole.

    Call it on the main thread of a process that has no other work: it holds signals back and adopts the run's orphans.
    `session_factory` is called before the fork with the options and the private folder; it may set `options.scratch`.
    Raises `GuardError` or the session's own error (`TraceError`, ...) for what is wrong before the agent is started;
    later failures are said by `options.say` and returned as a status (docs: the exit table of the command line).
    """
    # Another session than a recording one serves guards, and starts nothing that the kernel would have to hold.
    wish = "guard" if session_factory is not None and options.layers == "auto" else options.layers
    _need_descriptors()
    nested = kernel.nested()
    if nested:
        _accept_outer_run(options, wish)
    live = () if nested else kernel.choose(wish, options.allow_degraded)
    if options.mode == "observe":
        live = tuple(name for name in live if name != "landlock")  # which could only refuse
    how = _recognise(options, live, nested)
    options.policy = options.policy.with_interpreter(os.path.realpath(how.file))
    _fill_standard_descriptors()
    _pin_imports(options)
    signals = Signals()
    rundir = None
    try:
        rundir = RunDir.make(_base(options))
        ready = Run(options, how, live, rundir, nested=nested)
        ready.signals = signals
        if not live and not nested:
            _check_variables(ready)
        session = session_factory(options, rundir) if session_factory else None
        if options.create_roots:
            session = _make_write_folders(ready, session)
        listener = _listen(rundir.channel)
        if live:
            ready.confinement = _confine(ready)
        if asked := signals.asked():
            return 128 + asked
        child, report = launch.start(
            how.file,
            how.argv,
            ready.environ,
            options.cwd,
            mask=signals.mask,
            scratch=options.scratch,
            confinement=ready.confinement,
        )
        # The agent boots from here on: what follows runs beside it.
        from agentbox.guard.serve import conduct

        return conduct(ready, child, report, listener, session)
    finally:
        if rundir is not None:
            rundir.remove()
        signals.restore()


def _need_descriptors() -> None:
    limit = os.sysconf("SC_OPEN_MAX")  # sysconf(3): the soft RLIMIT_NOFILE, without the module that reads limits
    if 0 <= limit < _FEWEST_DESCRIPTORS:
        raise Unconfinable(
            f"open files: the limit is {limit}, expected at least {_FEWEST_DESCRIPTORS}, so nothing was run",
            f"raise it: ulimit -n {_FEWEST_DESCRIPTORS}, or more",
        )


def _accept_outer_run(options: RunOptions, wish: str) -> None:
    """Say what holds inside another run: that one's confinement, and nothing of this policy. Raises `Unconfinable` for
    what could only be pretended.
    """
    asked = ""
    if wish != "auto":
        asked = "replay" if options.layers == "auto" else f"--layers {wish}"
    elif options.mode == "observe":
        asked = "--observe"
    elif options.checkpoint:
        asked = "--checkpoint"
    if asked:
        raise Unconfinable(
            f"{asked}: not possible inside another run of agentbox, which alone decides and records; nothing was run",
            "do it outside of that run",
        )
    options.say(
        "inside another run of agentbox: its policy decides and its trace records what happens here; the rules of"
        f" {options.policy.name or 'this policy'} are not enforced"
    )


def _check_variables(ready: Run) -> None:
    """Raise `Unconfinable` where the policy hands on a variable by which the agent, in an earlier run, could have made
    this one run code before its guard is live.
    """
    from agentbox.guard.decisions._variables import unguarded
    from agentbox.guard.welcome import code_roots

    given = [os.fsencode(f"{name}={value}") for name, value in ready.environ.items()]
    policy, ours = ready.options.policy, code_roots()

    def is_writable(path: str) -> bool:
        return policy.is_writable(path) and not within(path, ours)

    reason = unguarded(ready.how.runtime, given, ready.environ, is_writable)
    if reason:
        raise Unconfinable(f"{ready.options.argv[0]}: {reason}; nothing was run", "remove its env: rule")


def _confine(ready: Run) -> Confinement:
    from agentbox.guard import welcome
    from agentbox.guard.kernel.confine import Confinement
    from agentbox.guard.kernel.grounds import Grounds

    if "netns" not in ready.layers:  # the run's starter becomes an orphan at once, and is to be ours
        from agentbox.guard.family import adopt_orphans

        adopt_orphans()
    ready.grounds = Grounds(ready.options, ready.how, ready.environ.get("PATH", ""), ready.layers)
    return Confinement(ready.layers, ready.options.policy, lambda: welcome.planned_from(ready))


def _base(options: RunOptions) -> Mapping[str, str]:
    return os.environ if options.environ is None else options.environ


def _recognise(options: RunOptions, live: tuple[str, ...], nested: bool) -> Launch:
    path = _base(options).get("PATH", environment.DEFAULT_PATH)
    file = launch.find_command(options.argv[0] if options.argv else "", options.cwd, path)
    command = runtimes.Command(
        file, options.argv, cwd=options.cwd, environ={"PATH": path}, write_roots=options.policy.write_roots()
    )
    try:
        how = runtimes.recognise(command, options.runtimes)
    except Unconfinable as error:
        held = nested or (live and not options.needs_guard)
        if not held or isinstance(error, OutdatedInterpreter):
            raise
        how = NATIVE.recognise(command)  # the layers hold it, and nobody explains
        how.script = python_script(command)
        if not nested:
            options.say(f"{error}; it runs without its guard")
    if nested:
        how.arms = False  # by us, that is
    elif (options.needs_guard or not live) and not runtimes.is_guarded(how.runtime, options.runtimes):
        raise Unguarded(
            f"{options.argv[0]}: no guard runs inside it and no kernel layer is live, so nothing was run",
            "leave --layers guard away, or run a Python or Node program; what that starts in turn needs an exec: rule",
        )
    return how


def _hash_seed(options: RunOptions, base: Mapping[str, str]) -> int:
    if options.hash_seed is not None:
        return options.hash_seed
    wished = base.get("PYTHONHASHSEED", "")
    if wished.isascii() and wished.isdigit() and int(wished) <= 0xFFFFFFFF:
        return int(wished)
    return int.from_bytes(os.urandom(4), "little")


def _fill_standard_descriptors() -> None:
    """Where 0, 1 or 2 is closed, put /dev/null there for us alone: else the trace could become the agent's standard
    output.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        pass
    os.close(descriptor)


def _make_write_folders(ready: Run, session: Session | None) -> Session | None:
    """Make the folders of write rules that are missing. They are made for a run that can be recorded only, so the trace
    is opened first; but for those that the trace itself is to lie in.
    """
    options = ready.options
    own, others = roots.missing(options)
    if own:
        from agentbox.guard.record import RecordSession

        around = os.path.dirname(os.path.realpath(os.path.join(options.cwd, options.trace)))
        if not os.path.lexists(around):
            roots.make(options, [folder for folder in own if (folder + "/").startswith(around + "/")])
        session = session or RecordSession(options, ready.environ)
        roots.make(options, own)
    for folder in others:
        options.note(f"note: {roots.advice(folder)}")
    for path in roots.unreachable(options, ready.layers):
        shown = roots.short(path, options.cwd)
        options.note(
            f"note: {shown} does not exist, and without the seccomp layer it cannot be created: create it first"
        )
    return session


def _pin_imports(options: RunOptions) -> None:
    """From here on nothing is imported from where the agent may write: much is loaded when it is first needed, and a
    module of the agent's making would run here, outside of every layer.

    What stays is sealed wherever it lies: our own code, and our interpreter's trees (`welcome`).
    """
    roots = [rule.form["root"] for rule in options.policy.rules_of(("write",))]
    if not roots:
        return
    from agentbox.guard.welcome import code_roots

    def is_open(entry: str) -> bool:
        place = os.path.realpath(os.path.join(options.cwd, entry))
        return any(within(place, [root]) or within(root, [place]) for root in roots)

    if sys.pycache_prefix and is_open(sys.pycache_prefix):
        sys.pycache_prefix = None
    sealed = [*code_roots(), *(homes(sys.executable) if sys.executable else ())]

    def pinned(entries: Iterable[str]) -> list[str]:
        # A name that leads over a link is not looked up again: who may replace the link would choose what is loaded.
        real = [os.path.realpath(os.path.join(options.cwd, entry)) for entry in entries]
        return [entry for entry in real if not is_open(entry) or within(entry, sealed)]

    # First the packages: where a namespace lies is looked for anew, and in less, once sys.path has changed.
    for module in list(sys.modules.values()):
        folders = getattr(module, "__path__", None)
        if folders is not None:
            module.__path__ = pinned(folders)
    sys.path[:] = pinned(sys.path)
    sys.path_importer_cache.clear()


def _listen(path: str) -> _socket.socket:
    import _socket

    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1024)
    return listener
