"""The supervisor's helpers behind an SDK call: the same decisions as for the agent's direct acts, made in its name.

One object serves one call; it may be used from any thread, and touches neither the session nor the channel.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard import procfs
from agentbox.guard.decisions import Desk, astray, denial_of, proc_exec, protects
from agentbox.guard.kernel import shm
from agentbox.guard.kernel.judge import SEALED
from agentbox.guard.names import literal
from agentbox.guard.paths import resolve, within
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class RunServices:
    """Implements `agentbox.guard.context.Services` for the process `pid`."""

    __slots__ = ("_desk", "_pid")

    def __init__(self, desk: Desk, pid: int) -> None:
        self._desk = desk
        self._pid = pid

    def resolve_path(self, path: str, cwd: str) -> str:
        found = resolve(path, cwd, self._pid)
        if shm.NAME in self._desk.private and shm.is_in(found):
            raise PermissionError(errno.EACCES, shm.OUTSIDE, found)
        return found

    def check_path(self, key: str, path: str) -> Denial | None:
        desk = self._desk
        if within(path, desk.hidden):
            return Denial(key, path, "it is agentbox's own record of this run")
        if key == "write" and within(path, desk.sealed):
            return Denial(key, path, SEALED)
        standing = procfs.standing(key, path, self._pid)
        if standing is procfs.CLOSED:
            return Denial(key, path, procfs.REASON)
        if standing is procfs.OWN:
            return None
        number = path[6:].partition("/")[0] if path.startswith("/proc/") else ""
        if key == "read" and number.isdigit() and desk.family.may_reach(int(number)):
            return None  # what is public of a process of the run
        private = within(path, list(desk.private.values()))
        if key != "write" and (private or within(path, desk.readable)):
            return None
        decision = desk.policy.decide(key, path)
        if not private and not decision.allowed:
            return denial_of(decision, key)
        reason = desk.protection.reason(path) if key == "write" else ""
        return protects(path, reason, desk.cwd) if reason else None

    def changing(self, descriptor: int) -> None:
        self._desk.hashes.written(os.fstat(descriptor))

    def check_host(self, host: str, port: int) -> Denial | None:
        decision = self._desk.policy.decide("net", host, port)
        return None if decision.allowed else denial_of(decision, "net")

    def addresses(self, host: str, port: int) -> tuple[list[str], Denial | None]:
        address = literal(host)
        if address:
            return [address], None
        found = self._desk.names.look_up(host)
        usable = self._desk.names.usable(host, port, found)
        if usable or not found:
            return usable, None
        return list(found), astray(self._desk.policy, host, port, found[0])

    def check_exec(self, argv: list[str], cwd: str, environ: Mapping[str, str]) -> tuple[dict[str, Any], Denial | None]:
        verdict = proc_exec.decide(argv[0], argv, cwd, environ == self._desk.environ, self._pid, self._desk)
        if verdict.missing:
            raise OSError(verdict.missing, os.strerror(verdict.missing), argv[0])
        return {"file": verdict.args["_file"], "argv": argv, "cwd": cwd}, verdict.denial

    def spawn(
        self, argv: list[str], *, file: str, cwd: str, stdin: bytes, timeout: float | None, limit: int
    ) -> tuple[int, bytes, bytes]:
        from agentbox.guard import spawn

        if not os.path.isdir(cwd):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), cwd)
        return spawn.run(
            file,
            argv,
            environ=self._desk.environ,
            cwd=cwd,
            stdin=stdin,
            timeout=timeout,
            limit=limit,
            family=self._desk.family,
            start=self._desk.start,
        )
