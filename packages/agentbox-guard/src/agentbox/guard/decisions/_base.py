"""What a decision on an asked operation is, and what it may look at. Decisions change nothing and record nothing."""

from __future__ import annotations

import errno
import os

from agentbox.guard.errors import ProtocolError
from agentbox.guard.kernel.protect import Protection
from agentbox.guard.kernel.protected import BUILTIN
from agentbox.guard.session import Denial
from agentbox.policy.forms.path import of_one_run, path_fix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from agentbox.guard.family import Family
    from agentbox.guard.hashes import Hashes
    from agentbox.guard.names import Names
    from agentbox.guard.runtimes._base import Guest
    from agentbox.policy import Decision, Policy

    class Program(Protocol):
        """A started program."""

        pid: int

        def wait(self) -> int:
            """Its wait status, when it has ended."""

    Starter = Callable[[str, Sequence[str], Mapping[str, str], str, list[int]], Program]
    """Takes file, argv, environment, working directory and the three standard descriptors. Raises `OSError`."""

    class Wall(Protocol):
        """What decisions ask of live kernel layers."""

        def is_agent(self, pid: int) -> bool:
            """Whether a process is still the agent's own program; others were let in by an `exec:` rule."""

        def start_problem(self, pid: int, file: str, argv: list[str]) -> Denial | None:
            """Why the process may not start the resolved `file`, or None."""

        def inside(
            self, op: str, address: str, port: int, pid: int, *, datagram: bool = False
        ) -> tuple[Denial | None, str] | None:
            """For an address that the run's own network decides on: the denial, and the host's name. `datagram` is told
            of what is to be bound.
            """

        own_processes: bool
        """Whether no process can even name one that is not of the run."""

        own_network: bool
        """Whether abstract names are the run's own (unix(7)): one of the machine is reached only by a rule."""

    class Decider(Protocol):
        """Decides one family of asked operations; a row of `agentbox.guard.decisions.DECIDERS`."""

        def decide(self, op: str, args: dict[str, Any], pid: int, desk: Desk) -> Verdict:
            """Quickly, on the loop thread; `args` are the line's, of any type. Raises `ProtocolError` on others."""

        def complete(self, verdict: Verdict, pid: int, desk: Desk) -> None:
            """What takes time (hashing, looking up), for an allowed `verdict.slow`, in a thread; may still refuse."""


PASSING = "; its folder has another name in each run, so no rule can name it"


class Desk:
    """What the run's decisions are made from: policy, folders, environment, names, file hashes, processes."""

    __slots__ = (
        "channel",
        "cwd",
        "environ",
        "family",
        "hashes",
        "hidden",
        "names",
        "own_loopback",
        "own_network",
        "policy",
        "private",
        "protection",
        "readable",
        "runtimes",
        "sealed",
        "start",
        "wall",
    )

    def __init__(
        self,
        policy: Policy,
        *,
        cwd: str,
        environ: Mapping[str, str],
        private: Mapping[str, str],
        channel: str,
        hidden: list[str],
        sealed: list[str],
        readable: list[str],
        family: Family,
        names: Names,
        hashes: Hashes,
        runtimes: Sequence[Guest] = (),
    ) -> None:
        self.policy = policy
        self.cwd = cwd
        self.environ = environ
        self.private = private
        self.protection = Protection(policy, tuple(private.values()))
        self.channel = channel
        self.hidden = hidden
        self.sealed = sealed
        self.readable = readable
        self.family = family
        self.names = names
        self.hashes = hashes
        self.runtimes = runtimes
        self.own_loopback = False
        """Whether the run has a loopback that is nobody else's, on which nothing needs a rule; so in a replay, too."""
        self.own_network = False
        """Whether the run's network is its own, also where rules name the loopback; so in a replay, too."""
        self.start: Starter | None = None
        """How programs for SDK calls are started inside the run's layers; None: by the supervisor itself."""
        self.wall: Wall | None = None
        """The kernel's layers, once they are live: then they hold, and guards only explain."""


class Verdict:
    """The outcome for one operation.

    `args` are what is recorded, but for members whose name starts with `_`. With `denial` it is refused (and recorded
    as a denial); with `missing` (an errno) it fails as it would have anyway, unrecorded. `value` goes to the agent.
    `quiet`: the run's own machinery, not recorded. `later`: the kernel's layers see the act and how it ends, so its
    entry is written then. `slow`: call `complete` first.
    """

    __slots__ = ("args", "code", "denial", "later", "missing", "quiet", "slow", "value")

    def __init__(self, args: dict[str, Any]) -> None:
        self.args = args
        self.denial: Denial | None = None
        self.code = errno.EACCES
        self.missing = 0
        self.value: dict[str, Any] = {}
        self.quiet = False
        self.later = False
        self.slow = False


def member(args: dict[str, Any], name: str, kind: type, op: str) -> Any:
    """A member of an asked operation's args. Raises `ProtocolError` when it is not exactly of that type."""
    value = args.get(name)
    if type(value) is not kind:
        raise ProtocolError(f"channel: {op}: {name}: got {ascii(value)[:60]}, expected {kind.__name__}")
    return value


def texts(args: dict[str, Any], name: str, op: str) -> list[str]:
    """A member that is a list of texts. Raises `ProtocolError`."""
    value: list[str] = member(args, name, list, op)
    if any(type(item) is not str for item in value):
        raise ProtocolError(f"channel: {op}: {name}: expected a list of texts")
    return value


def denial_of(decision: Decision, key: str) -> Denial:
    """A policy's refusal as it is recorded and reported."""
    return Denial(key, decision.target, decision.reason, rule=rule_text(decision), fix=decision.fix or None)


def astray(policy: Policy, host: str, port: int | None, address: str) -> Denial:
    """Why an allowed name may not be followed to an address."""
    decision = policy.decide("net", host, port, address)
    if not decision.allowed:
        return denial_of(decision, "net")
    fix = policy.decide("net", address, port).fix
    reason = f"it leads to {address} (this machine), which needs a rule of its own"
    return Denial("net", decision.target, reason, rule=rule_text(decision), fix=fix or None)


def protects(path: str, reason: str, cwd: str) -> Denial:
    """The built-in protection's refusal to change `path`, with the rule that would lift it, if any can."""
    fix = path_fix("write", path, cwd, exact=True)
    if of_one_run(path, cwd):
        reason = reason.removesuffix(BUILTIN) + PASSING
    return Denial("write", path, reason, fix=fix or None)


def rule_text(decision: Decision) -> str | None:
    """The rule that a decision rests on, with its place."""
    rule = decision.rule
    return None if rule is None else f"{rule.where}: {rule}"


def denial_text(op: str, denial: Denial, policy: str) -> str:
    """The one line that the agent's exception shows; `policy` is the policy file as the user named it.

    It names the operation, as the guard does for what it decides itself: an agent meets one wording.
    """
    from agentbox.policy.forms.path import denied_text

    return denied_text(op, denial.target, denial.reason, denial.fix or "", policy)


def executable(path: str) -> bool:
    """True for a file that execve(2) could start."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
