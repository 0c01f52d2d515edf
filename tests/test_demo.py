"""The demo does the main job: four effects, one observation, one denial, and the same again in a replay."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kit.waiting import PATIENCE

ROOT = Path(__file__).resolve().parent.parent


def test_the_demo_does_the_main_job() -> None:
    """`hatch run demo` records, shows, verifies, replays word for word, and catches a changed trace."""
    demo = [sys.executable, str(ROOT / "examples" / "run_demo.py")]
    done = subprocess.run(demo, stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
    assert "agentbox: recorded 4 effects, 1 observations, 1 denials -> trace.jsonl\n" in done.stdout
    assert "agentbox: replay ok — 5/5 recorded steps matched\n" in done.stdout
    assert re.search(r"verify FAILED \(edited\) — tampered\.jsonl: line \d+", done.stdout)
    clocks = re.findall(r"^clock: (.*)$", done.stdout, re.MULTILINE)
    assert len(clocks) == 2
    assert clocks[0] == clocks[1]
    assert done.stdout.count("\ndenied: ") == 2
    assert "Traceback" not in done.stdout
