"""Programs that have no interpreter guard: shells, compiled programs, interpreters that agentbox does not know.

Without a kernel layer nothing would hold them, so they are recognised only to be refused by the supervisor with a
reason.
"""

from __future__ import annotations

from agentbox.guard.runtimes._base import Command, Launch


class _Native:
    name = "native"
    guarded = False

    def recognise(self, command: Command) -> Launch:
        return Launch(self.name, command.file, command.argv, arms=False)

    def variables(self, hash_seed: int) -> dict[str, str]:
        return {}


NATIVE = _Native()
