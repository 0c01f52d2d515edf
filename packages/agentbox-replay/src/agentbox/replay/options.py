"""What a replay is asked for: one plain object that the command line or an embedding program fills in.

It holds wishes only; nothing here is opened or decided.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agentbox.guard.runtimes import Guest


class ReplayOptions:
    """One replay: which command, under which policy, against which trace.

    `argv` is the command (not empty), started in `cwd` (absolute; None: the present one). `policy_path` None takes
    the policy text from the trace. `allow_unsealed` accepts a trace without its last line. With `json` the outcome is
    one JSON line. `say` takes one message line, without the `agentbox:` prefix (None: standard error). `environ` is the
    user's environment (None: the process's own). `layers` is `kernel`, `guard` or `auto`: the kernel's where they held
    the recorded run and this machine gives them, and a guard inside the command in any case. `runtimes` are
    interpreters beyond the guard's own, as for `RunOptions`.
    """

    __slots__ = (
        "allow_unsealed", "argv", "cwd", "environ", "json", "layers", "policy_path", "runtimes", "say", "trace_path",
    )  # fmt: skip

    def __init__(
        self,
        *,
        argv: Sequence[str],
        trace_path: str,
        policy_path: str | None = None,
        cwd: str | None = None,
        allow_unsealed: bool = False,
        json: bool = False,
        say: Callable[[str], None] | None = None,
        environ: Mapping[str, str] | None = None,
        layers: str = "auto",
        runtimes: Sequence[Guest] = (),
    ) -> None:
        self.argv = list(argv)
        self.trace_path = trace_path
        self.policy_path = policy_path
        self.cwd = cwd
        self.allow_unsealed = allow_unsealed
        self.json = json
        self.say = say
        self.environ = environ
        self.layers = layers
        self.runtimes = tuple(runtimes)
