"""What the supervisor asks of a session: the interface that record and replay implement.

A session decides nothing about policy and never talks to the agent; it is told what happened, in order, by one thread.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Session(Protocol):
        """Where the supervisor's events go. Every method is called from the supervisor's loop thread only."""

        mode: str
        """`record`, `observe` or `replay`: what the guard is told in its welcome."""
        ask: str
        """Which file operations the guard must ask for: `none`, `writes` or `all`."""

        def start(self, header: dict[str, Any]) -> None:
            """Begin; `header` is the `run.start` record's `args` (argv, cwd, policy, layers, versions)."""

        def process(self, event: Event) -> None:
            """A fact about a process: its guard is armed (`event.op` is `process.start`), it loads native code
            (`code.load`), agentbox has started its program (`proc.exec`), or it was told that the kernel lacks a call
            (`sys.call`).
            """

        def observe(self, event: Event) -> None:
            """The agent does something that the policy allows. Raises `EndRun` if the run must not go on."""

        def deny(self, event: Event, denial: Denial) -> None:
            """The agent was refused something (or would have been, `denial.enforced` false). May raise `EndRun`."""

        def begin(self, event: Event, effect: EffectFacts) -> dict[str, Any] | None:
            """An SDK effect is about to happen: return its result to serve it, or None to have it performed."""

        def consult(self, event: Event) -> dict[str, Any] | None:
            """The agent asks for something beyond files (`proc.exec`, `net.*`, `proc.signal`) that the policy allows.

            None: it may happen, and `observe` follows with the complete args. Else a verdict to answer with in its
            place (docs/spec/channel.md: `allow`, and `value` or `text` and `errno`); nothing is done or observed then,
            so the session has taken note itself. May raise `EndRun`.
            """

        def complete(self, event: Event, effect: EffectFacts, result: dict[str, Any]) -> None:
            """An SDK effect that `begin` let through is done; `result` may hold `error` instead of a value."""

        def flush(self) -> None:
            """The end of a batch: called after one or many of the calls above, before any answer goes out."""

        def finish(self, ended: Ended) -> int:
            """The agent is gone: seal or report. Returns the exit status of the whole command.

            Also called after `EndRun` and after a failure of agentbox (`ended.failure` says which); the status of those
            stands.
            """

    class EffectFacts(Protocol):
        """What a session may know of an effect kind (one row of `agentbox.guard.effects.EFFECTS`)."""

        op: str
        irreversible: bool
        mutates: bool

        def identity(self, args: dict[str, Any]) -> dict[str, Any]:
            """The part of `args` that tells two calls apart; what replay matches on."""


class Event:
    """One thing that happened in the agent: `op`, `args`, where (`lane`, `pid`, `site`) and who says so (`src`).

    `private` holds what the supervisor knows of an effect beyond what is recorded (`_path` as it is on disk, `_data` to
    write).
    """

    __slots__ = ("args", "lane", "op", "pid", "private", "site", "src")

    def __init__(
        self, op: str, args: dict[str, Any], *, lane: str = "0.0", pid: int = 0, src: str = "guard", site: str = ""
    ) -> None:
        self.op = op
        self.args = args
        self.lane = lane
        self.pid = pid
        self.src = src
        self.site = site
        self.private: dict[str, Any] = {}


_LONGEST = 4096  # letters: PATH_MAX; a command line may be megabytes


class Denial:
    """Why something was refused: the rule kind `key`, the resolved `target`, the `reason`, the rule consulted, the line
    that would allow it.
    """

    __slots__ = ("enforced", "fix", "key", "reason", "rule", "target")

    def __init__(
        self,
        key: str,
        target: str,
        reason: str,
        *,
        rule: str | None = None,
        fix: str | None = None,
        enforced: bool = True,
    ) -> None:
        self.key = key
        self.target = target[:_LONGEST]
        self.reason = reason
        self.rule = rule
        self.fix = fix if fix is None or len(fix) <= _LONGEST else None  # half a rule is another rule
        self.enforced = enforced


class Ended:
    """How the agent ended: `status` (0 to 255, or 128+n for signal n), `signal` (0 if none), `duration` in seconds,
    `failure` (text) if agentbox ended it. `hurry` becomes true when the user wants the end now (SIGINT, SIGTERM).
    """

    __slots__ = ("duration", "failure", "hurry", "signal", "status")

    def __init__(
        self,
        status: int,
        *,
        signal: int = 0,
        duration: float = 0.0,
        failure: str = "",
        hurry: Callable[[], bool] = lambda: False,
    ) -> None:
        self.status = status
        self.signal = signal
        self.duration = duration
        self.hurry = hurry
        self.failure = failure


class EndRun(Exception):
    """Raised by a session: the supervisor ends every process of the run; `status` is the command's exit status,
    `report` what the user reads.
    """

    def __init__(self, status: int, report: str) -> None:
        super().__init__(report)
        self.status = status
        self.report = report
