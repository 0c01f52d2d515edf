"""What an SDK effect may use of the run while it is checked and performed: policy, private folders, names, programs,
denials.

It never touches the session, the trace or the channel: it is used from worker threads, and only the loop thread may use
those.
"""

from __future__ import annotations

from agentbox.guard.paths import show_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from agentbox.guard.session import Denial
    from agentbox.policy import Policy

    class Services(Protocol):
        """The supervisor's helpers behind a context; each may be called from any thread."""

        def resolve_path(self, path: str, cwd: str) -> str:
            """The object that `path` names (links followed, the last part may be missing), absolute."""

        def check_path(self, key: str, path: str) -> Denial | None:
            """None if rule kind `key` (`read` or `write`) allows the resolved `path`."""

        def changing(self, descriptor: int) -> None:
            """The content of the file open for writing is about to change. Raises `OSError` (ETXTBSY) while it starts
            as a program.
            """

        def check_host(self, host: str, port: int) -> Denial | None:
            """None if a `net:` rule allows the name or literal address `host` with `port`."""

        def addresses(self, host: str, port: int) -> tuple[list[str], Denial | None]:
            """The addresses to dial for an allowed host, pinned for the run; a denial if only special ones are left."""

        def check_exec(
            self, argv: list[str], cwd: str, environ: Mapping[str, str]
        ) -> tuple[dict[str, Any], Denial | None]:
            """`file` (resolved), `argv` and `cwd` of a start, and None if it may happen. Raises `OSError` when there is
            no such program.
            """

        def spawn(
            self, argv: list[str], *, file: str, cwd: str, stdin: bytes, timeout: float | None, limit: int
        ) -> tuple[int, bytes, bytes]:
            """Run to the end, confined as the agent is; status (128+n for signal n), standard output and error."""


class EffectDenied(Exception):
    """The policy refuses an effect; `denial` says why. Never seen by users: the supervisor turns it into a `denied`
    answer.
    """

    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.reason)
        self.denial = denial


class EffectUsage(Exception):
    """The agent called the SDK wrongly; the text is one clear line (answered as type `usage`, never recorded)."""


class EffectContext:
    """One SDK call's view of the run; the supervisor makes a fresh one for every call.

    Contract for `Effect.normalise(args, context)` and `Effect.perform(args, context)`:

    - `normalise` runs on the loop thread and must be quick; `perform` runs in a worker thread when `effect.slow`.
    - A member of the normalised args whose name starts with `_` is for `perform` only: not recorded, not matched by
    replay.
    - A `bytes` value in args or result is a body: the session stores it with `TraceWriter.body`, the channel carries it
      as `{"text": ...}` when it is UTF-8, else as `{"base64": ...}`; a replayed result comes back with `bytes` again.
    - Between `file()` and the use of the path the agent may swap a link: open with `O_NOFOLLOW`, then compare
      `/proc/self/fd/N` with the path that was decided, and refuse with `refuse()` when they differ.
    - An OS failure of `perform` is a result, `{"error": {"type": "os", "text": ..., "errno": ...}}`; nothing else may
    be
      raised but `EffectDenied` (by `refuse`) and `EffectUsage`. An `OSError` of `normalise` (no such program, a
      circle of links) is answered to the agent and not recorded: nothing has happened.
    """

    __slots__ = ("cwd", "denials", "environ", "observing", "pid", "policy", "services", "writable")

    def __init__(
        self,
        policy: Policy,
        services: Services,
        *,
        cwd: str,
        environ: Mapping[str, str],
        writable: Mapping[str, str],
        observing: bool = False,
        pid: int = 0,
    ) -> None:
        self.policy = policy
        self.services = services
        self.cwd = cwd
        """The calling process's working directory (absolute): what relative arguments are resolved against."""
        self.environ = environ
        """The agent's own environment, guard variables included."""
        self.writable = writable
        """Private trees, name to path: `TMPDIR` and `HOME`."""
        self.observing = observing
        self.pid = pid
        self.denials: list[Denial] = []
        """What would have been refused, in `observe` mode; the supervisor reports them after the call."""

    def refuse(self, denial: Denial) -> None:
        """Refuse the call: raises `EffectDenied`; in `observe` mode notes the denial and returns."""
        if not self.observing:
            raise EffectDenied(denial)
        denial.enforced = False
        self.denials.append(denial)

    def file(self, key: str, path: str) -> str:
        """Decide a path: `key` is `read` or `write`; returns it resolved and absolute, raises `EffectDenied`."""
        resolved = self.services.resolve_path(path, self.cwd)
        denial = self.services.check_path(key, resolved)
        if denial is not None:
            self.refuse(denial)
        return resolved

    def host(self, host: str, port: int) -> None:
        """Decide a host (name or literal address) and port by the `net:` rules; raises `EffectDenied`."""
        denial = self.services.check_host(host, port)
        if denial is not None:
            self.refuse(denial)

    def addresses(self, host: str, port: int) -> list[str]:
        """The literal addresses to dial for `host`, resolved once and pinned; call in `perform` (it may wait for DNS).

        Raises `EffectDenied` when an allowed name leads only to loopback, private or link-local addresses that no
        rule names, and `OSError` (`socket.gaierror`) when there is no such name.
        """
        found, denial = self.services.addresses(host, port)
        if denial is not None:
            self.refuse(denial)
        return found

    def program(self, argv: list[str], cwd: str) -> dict[str, Any]:
        """Decide a program by the `exec:` rules, guard-disarming flags included; returns `{file, argv, cwd}`, `file`
        resolved.

        Raises `EffectDenied`, and `OSError` when there is no such program.
        """
        facts, denial = self.services.check_exec(argv, cwd, self.environ)
        if denial is not None:
            self.refuse(denial)
        return facts

    def spawn(
        self,
        argv: list[str],
        *,
        file: str,
        cwd: str,
        stdin: bytes = b"",
        timeout: float | None = None,
        limit: int = 64 * 1024 * 1024,
    ) -> tuple[int, bytes, bytes]:
        """Run a decided program (`file` from `program()`) to its end, confined as the agent; call in `perform` only.

        Raises `OSError`: ETIMEDOUT after `timeout` seconds, EFBIG when output or error is longer than `limit` bytes
        (the program and what it started are killed then), else what execve(2) says.
        """
        return self.services.spawn(argv, file=file, cwd=cwd, stdin=stdin, timeout=timeout, limit=limit)

    def show(self, path: str) -> str:
        """The path as the trace writes it: the run's private folders become `$TMPDIR/...` and `$HOME/...`."""
        return show_path(path, self.writable)
