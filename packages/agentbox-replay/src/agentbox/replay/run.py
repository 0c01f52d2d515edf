"""`replay(options)`: checks the trace, makes the scratch copy, and runs the command under a `ReplaySession`.

It never starts the agent when the replay could not be trusted, and leaves no file behind.
"""

from __future__ import annotations

import os

from agentbox.replay import outcome
from agentbox.replay.describe import escape
from agentbox.replay.errors import ScratchUnavailable, TraceInvalid
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

    Raises `ReplayError` (trace missing or invalid, no scratch copy), `agentbox.policy.PolicyError` and
    `agentbox.guard.errors.GuardError`; nothing was run then.
    """
    from agentbox.guard import RunOptions, run

    say = options.say or outcome.say
    cwd = os.path.realpath(options.cwd or os.getcwd())
    recording = Recording.open(options.trace_path, allow_unsealed=options.allow_unsealed)
    stage = _Stage(recording, outcome.JsonOutcome(say, outcome.to_stderr) if options.json else outcome.TextOutcome(say))
    try:
        return run(
            RunOptions(
                policy=_policy(options, recording, cwd, say),
                argv=options.argv,
                cwd=cwd,
                trace=options.trace_path,
                say=say,
                layers=options.layers,
                runtimes=options.runtimes,
                hash_seed=_hash_seed(recording),
                create_roots=False,
                environ=options.environ,
            ),
            stage.session,
        )
    finally:
        stage.close()


class _Stage:
    """What a replay holds open: the recording and the scratch copy."""

    __slots__ = ("_outcome", "_recording", "_scratch")

    def __init__(self, recording: Recording, result: Outcome) -> None:
        self._recording = recording
        self._outcome = result
        self._scratch: Scratch | None = None

    def session(self, options: RunOptions, rundir: RunDir) -> Session:
        """The supervisor's session factory: called once, before the fork and before any thread is started."""
        self._scratch = self._make_scratch(options.policy)
        if self._scratch is not None:
            self._scratch.expose(rundir.path)
            options.scratch = self._scratch
        environ = os.environ if options.environ is None else options.environ
        return ReplaySession(self._recording, self._outcome, scratch=self._scratch, environ=environ)

    def close(self) -> None:
        """Let go of everything; nothing remains."""
        if self._scratch is not None:
            self._scratch.close()
        self._recording.close()

    def _make_scratch(self, policy: Policy) -> Scratch | None:
        """The copy that the recorded writes need; None when there are none, or only skipped ones and no way."""
        prestate = self._recording.prestate
        if not prestate.changed:
            return None
        try:
            covers = plan_covers(_roots(prestate, policy))
            make = [folder for folder in policy.write_folders() if is_under(folder, covers)]
            return Scratch.open(covers, make=make, hide=prestate.absent(), cut=prestate.appended) if covers else None
        except ScratchUnavailable as error:
            if prestate.direct:
                raise
            self._outcome.warn(f"{escape(str(error))}; SDK writes are checked without being made")
            return None


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

    if options.policy_path is not None:
        return load(options.policy_path, cwd=cwd)
    text = recording.header.get("policy")
    if not isinstance(text, str):
        raise TraceInvalid(f"{options.trace_path}: holds no policy text", hint="name the policy file with -p")
    say("no policy file is given, so the policy that the trace holds is used")
    return parse(text, name="recorded policy", cwd=cwd)
