"""The first entry of a trace, `run.start`: what was asked for, and what held the run."""

from __future__ import annotations

import os
import sys

from agentbox.guard import kernel, welcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.supervisor import Run

VERSION = "0.1.0"
OUTER = "outer run"
"""What stands in a header for the layers of a run that is inside another."""


def header(run: Run) -> dict[str, Any]:
    """The args of `run.start`."""
    options, policy = run.options, run.options.policy
    machine = os.uname()
    return {
        "run": os.path.basename(run.rundir.path).rpartition("-")[2],
        "argv": options.argv,
        "cwd": options.cwd,
        "mode": run.session.mode,
        "runtime": run.how.runtime,
        "policy": policy.text,
        "policy_name": policy.name,
        "policy_sha256": policy.sha256,
        "layers": [OUTER] if run.nested else [*(("guard",) if run.how.arms else ()), *run.layers],
        "enforced_by": _enforced_by(run),
        "env": sorted(run.environ),
        "hash_seed": run.hash_seed,
        "versions": {"agentbox": VERSION, "python": ".".join(map(str, sys.version_info[:3]))},
        "platform": f"{machine.sysname} {machine.release} {machine.machine}",
    }


def _enforced_by(run: Run) -> dict[str, list[str]]:
    found = kernel.enforcement(run.layers, welcome.GUARDED_KINDS)
    if run.nested:
        return {kind: [OUTER] for kind in found}
    if run.session.mode == "observe":  # but for the environment, which the launcher builds before
        return {kind: parts if kind == "env" else [] for kind, parts in found.items()}
    return found
