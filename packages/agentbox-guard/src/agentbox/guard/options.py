"""What a run is asked for: one plain object that the command line, an embedding program or replay fills in.

It holds wishes only; nothing here is decided, opened or made.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from agentbox.guard.runtimes._base import Guest
    from agentbox.policy import Policy

    class Scratch(Protocol):
        """Where a replay's direct writes land; made before the agent is forked."""

        own_shm: bool
        """Whether the agent finds a /dev/shm of its own there."""
        own_loopback: bool
        """Whether it may listen there without a rule, in a network with nothing in it but a loopback."""
        own_network: bool
        """Whether it has such a network, as the recorded run had one."""

        def enter(self) -> None:
            """Called in the forked child right before exec (one thread): put the scratch copy in place."""


class RunOptions:
    """One run: what to start, under which policy, recorded where.

    `policy` is parsed. `argv` is the command (not empty), started in `cwd` (absolute). `trace` is the path of the trace
    as the user wrote it. `mode` is `record` or `observe`; `layers` is `auto`, `kernel` or `guard`;
    `allow_degraded` names kernel layers that may be missing. `read_trace` false leaves out what programs without a
    guard read. `say` takes one message line, without prefix; `note` takes those that tell of no problem (by default
    `say` as well), `live` takes denials as they happen (by default all are told at the end).
    `runtimes` are interpreters beyond this package's own, asked first. For replay:
    `hash_seed` is the recorded PYTHONHASHSEED, `needs_guard` refuses a command in which no guard would run also where
    kernel layers are live, `scratch` is entered in the child before exec, `create_roots` false
    leaves missing write roots alone. `environ` defaults to the process's own.
    """

    __slots__ = (
        "allow_degraded",
        "argv",
        "checkpoint",
        "create_roots",
        "cwd",
        "environ",
        "hash_seed",
        "layers",
        "live",
        "mode",
        "needs_guard",
        "note",
        "policy",
        "read_trace",
        "runtimes",
        "say",
        "scratch",
        "trace",
    )

    def __init__(
        self,
        *,
        policy: Policy,
        argv: Sequence[str],
        cwd: str,
        trace: str,
        say: Callable[[str], None],
        note: Callable[[str], None] | None = None,
        live: Callable[[str], None] | None = None,
        mode: str = "record",
        layers: str = "auto",
        allow_degraded: Sequence[str] = (),
        read_trace: bool = True,
        checkpoint: bool = False,
        runtimes: Sequence[Guest] = (),
        hash_seed: int | None = None,
        needs_guard: bool = False,
        scratch: Scratch | None = None,
        create_roots: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.policy = policy
        self.argv = list(argv)
        self.cwd = cwd
        self.trace = trace
        self.say = say
        self.note = note or say
        self.live = live
        self.mode = mode
        self.layers = layers
        self.allow_degraded = tuple(allow_degraded)
        self.read_trace = read_trace
        self.checkpoint = checkpoint
        self.runtimes = tuple(runtimes)
        self.hash_seed = hash_seed
        self.needs_guard = needs_guard
        self.scratch = scratch
        self.create_roots = create_roots
        self.environ = environ
