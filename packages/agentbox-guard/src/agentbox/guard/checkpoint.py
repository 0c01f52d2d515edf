"""`--checkpoint`: one snapshot by the user's own `snapback`, right before the agent's first change.

It runs outside the sandbox as the user would run it, once. It must never let a mutation pass when there is no snapshot.
"""

from __future__ import annotations

import os
import sys
import threading

from agentbox.guard.errors import GuardError
from agentbox.guard.untrusted import LARGEST_TEXT, read_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

TIMEOUT = 600.0
"""How long a snapshot may take, in seconds; it copies the whole tree."""
INSTALL = "pip install snapback-cli"
_ANSWER = "snapback: snapshot "
"""What `snapback snap` prints before the id (snapback-cli 0.2.0)."""
_BLOCKED = "no checkpoint, so nothing is changed"
_ID_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class CheckpointError(GuardError):
    """No checkpoint could be taken; answered to the agent, whose mutation is not made."""

    code = "checkpoint"


class Checkpoint:
    """The checkpoint of one run, taken when it is first needed; also what a session must know of it (`EffectFacts`).

    Args: `root` is the folder to snapshot (absolute), `say` takes one message line, `run_id` goes into the snapshot's
    message, `environ` is the user's own environment, `keep` are paths that an undo should leave alone (the trace, its
    blobs), `timeout` is in seconds.
    """

    op = "hook.checkpoint"
    irreversible = False
    mutates = False

    def __init__(
        self,
        root: str,
        say: Callable[[str], None],
        *,
        run_id: str = "",
        environ: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        timeout: float = TIMEOUT,
    ) -> None:
        self.root = root
        self.args: dict[str, Any] = {"tool": "snapback"}
        self._say = say
        self._message = f"agentbox run {run_id}".rstrip()
        self._environ = os.environ if environ is None else environ
        self._keep = [os.path.join(root, path) for path in keep]
        self._timeout = timeout
        self._lock = threading.Lock()
        self._outcome: str | CheckpointError | None = None

    @property
    def sealed(self) -> tuple[str, str]:
        """What the agent must not write while there is a checkpoint: it could undo the undo."""
        return os.path.join(self.root, ".snapback"), os.path.join(self.root, "snapback.toml")

    def identity(self, args: dict[str, Any]) -> dict[str, Any]:
        """There is one checkpoint in a run, so the tool names it."""
        return {"tool": args.get("tool")}

    def take(self) -> str:
        """The snapshot's id; the first call makes it, on any thread. Raises `CheckpointError`, at each call then."""
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = self._snap()
                except CheckpointError as error:
                    self._outcome = error
        if isinstance(self._outcome, CheckpointError):
            raise self._outcome
        return self._outcome

    def _snap(self) -> str:
        program = find_snapback(self._environ)
        if program is None:
            raise CheckpointError(f"{_BLOCKED}: snapback is not on PATH; install it with `{INSTALL}`", INSTALL)
        status, out, err = self._run([program, "--root", self.root, "snap", "-m", self._message])
        if status:
            reason = (err.strip() or out.strip()).rpartition("\n")[2][:200] or "it said nothing"
            raise CheckpointError(f"{_BLOCKED}: snapback ended with status {status}: {reason}")
        found = [line.removeprefix(_ANSWER) for line in out.splitlines() if line.startswith(_ANSWER)]
        if len(found) != 1 or not found[0] or not _ID_LETTERS.issuperset(found[0]):
            raise CheckpointError(f"{_BLOCKED}: snapback printed {out[:80]!r}, expected `{_ANSWER}<id>`")
        self._tell(found[0])
        return found[0]

    def _run(self, argv: list[str]) -> tuple[int, str, str]:
        """Run to the end, in its own process group so that all of it can be ended."""
        import signal
        import subprocess

        try:
            process = subprocess.Popen(
                argv,
                cwd=self.root,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=0,
            )
        except OSError as error:
            raise CheckpointError(f"{_BLOCKED}: {argv[0]} cannot be started: {error.strerror}") from error
        with process:
            try:
                out, err = process.communicate(timeout=self._timeout)
            except BaseException as error:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise CheckpointError(f"{_BLOCKED}: snapback did not end within {self._timeout:g} s") from None
        return process.returncode, out, err

    def _tell(self, snapshot: str) -> None:
        self._say(f"checkpoint {snapshot} taken before first mutation")
        where = "" if self.root == os.getcwd() else f"--root {self.root} "
        self._say(f"undo it with: snapback {where}undo {snapshot}")
        exposed = [name for name in self._keep if _snapshotted(self.root, name)]
        if exposed:
            names = ", ".join(f'"{name}"' for name in map(os.path.basename, exposed))
            self._say(f"hint: that rolls {names} back too; put `ignore = [{names}]` under [snapshot] in snapback.toml")


def find_snapback(environ: Mapping[str, str]) -> str | None:
    """The `snapback` program: on PATH (absolute folders only), else beside this interpreter; None if there is none."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    for folder in [*folders, os.path.dirname(sys.executable)]:
        candidate = os.path.join(folder, "snapback")
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def _snapshotted(root: str, path: str) -> bool:
    """Is `path` in the snapshot of `root`, by the `ignore` patterns of snapback.toml (its rules, version 0.2.0)?"""
    import fnmatch
    import tomllib

    if not path.startswith(root.rstrip("/") + "/"):
        return False
    try:
        text = read_regular(os.path.join(root, "snapback.toml"), LARGEST_TEXT, follow=True).decode()
        snapshot = tomllib.loads(text).get("snapshot", {})
    except (OSError, ValueError):
        snapshot = {}
    relative = os.path.relpath(path, root)
    names = [relative, *relative.split("/")]
    ignored = any(fnmatch.fnmatch(name, pattern) for pattern in snapshot.get("ignore", []) for name in names)
    return bool(snapshot.get("tree", True)) and not ignored
