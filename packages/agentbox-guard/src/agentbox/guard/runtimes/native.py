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
        # Programs open the folder that they start in (make, perl -i), to come back to it; it shows names and no more.
        return Launch(self.name, command.file, command.argv, listable=command.cwd, arms=False)

    def variables(self, hash_seed: int) -> dict[str, str]:
        return {}


NATIVE = _Native()
