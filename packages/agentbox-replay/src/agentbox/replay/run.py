"""`replay(options)`: checks the trace, makes scratch copy and empty network, and runs the command in them.

It never starts the agent when the replay could not be trusted, and leaves no file behind.
"""

from __future__ import annotations

import os

from agentbox.guard.kernel import shm
from agentbox.guard.kernel.grounds import loopback_ruled
from agentbox.replay import outcome
from agentbox.replay.describe import escape
from agentbox.replay.errors import NoSteps, ScratchUnavailable, TraceInvalid
from agentbox.replay.layers import chosen
from agentbox.replay.recording import Recording
from agentbox.replay.scratch import Scratch, is_under, plan_covers
from agentbox.replay.session import ReplaySession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbox.guard.options import RunOptions
    from agentbox.guard.rundir import RunDir
    from agentbox.guard.session import Session
    from agentbox.policy import Policy
    from agentbox.replay.options import ReplayOptions
    from agentbox.replay.prestate import PreState
    from agentbox.replay.session import Outcome


def replay(options: ReplayOptions) -> int:
    """Run the command again from its recording; returns the agent's own exit status, or 3 for a divergence.

    Raises `ReplayError` (trace missing or invalid, no scratch copy, a command without a guard),
    `agentbox.policy.PolicyError` and `agentbox.guard.errors.GuardError`; nothing was run then.
    """
    from agentbox.guard import RunOptions, run
    from agentbox.guard.errors import Unguarded

    say = options.say or outcome.say
    cwd = os.path.realpath(options.cwd or os.getcwd())
    recording = Recording.open(options.trace_path, allow_unsealed=options.allow_unsealed, cwd=cwd)
    result = outcome.JsonOutcome(say, outcome.to_stderr) if options.json else outcome.TextOutcome(say)
    stage = _Stage(recording, result, say, strict=options.layers == "kernel")
    try:
        return run(
            RunOptions(
                policy=_policy(options, recording, cwd, say),
                argv=options.argv,
                cwd=cwd,
                trace=options.trace_path,
                say=say,
                layers=chosen(recording) if options.layers == "auto" else options.layers,
                needs_guard=options.layers == "auto",
                runtimes=options.runtimes,
                hash_seed=_hash_seed(recording),
                create_roots=False,
                environ=options.environ,
            ),
            stage.session,
        )
    except Unguarded as error:
        raise NoSteps(escape(options.argv[0])) from error
    finally:
        stage.close()


class _Stage:
    """What a replay holds open: the recording and the scratch copy."""

    __slots__ = ("_outcome", "_recording", "_say", "_scratch", "_strict")

    def __init__(self, recording: Recording, result: Outcome, say: Callable[[str], None], *, strict: bool) -> None:
        self._strict = strict
        """Whether the kernel's layers were asked for by name: all that they see is compared then."""
        self._recording = recording
        self._outcome = result
        self._say = say
        self._scratch: Scratch | None = None

    def session(self, options: RunOptions, rundir: RunDir) -> Session:
        """The supervisor's session factory: called once, before the fork and before any thread is started."""
        recording = self._recording
        own_shm = recording.has_own_shm() and shm.is_free(options.policy, (rundir.path, options.cwd))
        own_network = recording.has_own_network()
        own_loopback = own_network and not loopback_ruled(options.policy)
        self._scratch = self._make_scratch(options.policy, own_shm)
        if self._scratch is not None:
            self._scratch.expose(rundir.path)
            self._scratch.own_loopback = own_loopback and not self._scratch.network
            self._scratch.own_network = own_network and not self._scratch.network
            options.scratch = self._scratch
        environ = os.environ if options.environ is None else options.environ
        return ReplaySession(
            recording,
            self._outcome,
            scratch=self._scratch,
            environ=environ,
            own_loopback=own_loopback,
            may_change=None if self._strict else options.policy.is_writable,
        )

    def close(self) -> None:
        """Let go of everything; nothing remains."""
        if self._scratch is not None:
            self._scratch.close()
        self._recording.close()

    def _make_scratch(self, policy: Policy, own_shm: bool) -> Scratch | None:
        """The copy of all that may be written, with the empty network; None where the machine gives neither.

        Raises `ScratchUnavailable` when the trace has direct writes and no copy can be made for them.
        """
        prestate = self._recording.prestate
        try:
            covers = plan_covers(_roots(prestate, policy))
            make = [folder for folder in policy.made_folders() if is_under(folder, covers)]
            hide, cut = prestate.absent(), prestate.appended
            scratch = Scratch.open(covers, make=make, hide=hide, cut=cut, own_shm=own_shm, loopback=True)
        except ScratchUnavailable as error:
            if prestate.direct:
                raise
            return self._without_copy(escape(error.reason), own_shm)
        self._tell_gaps(scratch)
        return scratch

    def _without_copy(self, reason: str, own_shm: bool) -> Scratch | None:
        try:
            scratch = Scratch.open([], own_shm=own_shm, loopback=True)
        except ScratchUnavailable:
            self._say(
                f"replay runs without its scratch copy and empty network: {reason}; "
                "what native code does by itself would be real"
            )
            return None
        self._say(f"replay runs without its scratch copy: {reason}; all files are read-only meanwhile")
        self._tell_gaps(scratch)
        return scratch

    def _tell_gaps(self, scratch: Scratch) -> None:
        if scratch.network:
            self._say(
                f"replay runs without its empty network: {escape(scratch.network)}; "
                "what native code does by itself would be real"
            )
        if scratch.open_mounts:
            self._say(
                f"replay cannot make {escape(', '.join(scratch.open_mounts))} read-only; "
                "what native code writes there by itself would be real"
            )


def _roots(prestate: PreState, policy: Policy) -> Iterator[str]:
    """Every path that needs a cover: what the policy lets be written, and what the recorded run wrote."""
    yield from (rule.form["root"] for rule in policy.rules_of(("write",)) if rule.form["root"] != "/")
    yield from (os.path.dirname(path) for path in prestate.changed)
    # A rename works only inside one file system, and each cover is one: cover what both ends have in common.
    for pair in prestate.pairs:
        common = os.path.commonpath(pair) if all(path.startswith("/") for path in pair) else "/"
        if common != "/":
            yield common


def _hash_seed(recording: Recording) -> int | None:
    """The recorded PYTHONHASHSEED; None if the trace has none that Python takes."""
    seed = recording.header.get("hash_seed")
    return seed if isinstance(seed, int) and 0 <= seed <= 0xFFFFFFFF else None


def _policy(options: ReplayOptions, recording: Recording, cwd: str, say: Callable[[str], None]) -> Policy:
    from agentbox.policy import load, parse

    # What the agent reads in a denial names the policy file, and must not differ from what it read when recorded.
    name = recording.header.get("policy_name")
    if options.policy_path is not None:
        policy = load(options.policy_path, cwd=cwd)
        return policy.renamed(name) if isinstance(name, str) else policy
    text = recording.header.get("policy")
    if not isinstance(text, str):
        raise TraceInvalid(f"{options.trace_path}: holds no policy text", hint="name the policy file with -p")
    say("no policy file is given, so the policy that the trace holds is used")
    if not isinstance(name, str):
        return parse(text, name="recorded policy", cwd=cwd, may_be_empty=True)
    # The file is protected when it comes back during the run, as it was.
    return parse(text, name=name, cwd=cwd, may_be_empty=True).renamed(name, os.path.realpath(os.path.join(cwd, name)))
