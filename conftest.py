"""What holds for the tests of all packages: hypothesis without a clock, and the tier of each test by its folder."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine takes longer for one example than the 200 ms that hypothesis allows, and none of them measures time.
settings.register_profile("agentbox", deadline=None)
settings.load_profile("agentbox")

# nohup(1) and background jobs of a shell leave signals ignored, which every program that a test starts would inherit.
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent
TIERS = {
    "packages/agentbox-guard/tests/kernel": "kernel",
    "packages/agentbox-guard": "process",
    "packages/agentbox-node": "process",
    "packages/agentbox-replay/tests/test_layers.py": "process",
    "packages/agentbox-replay/tests/test_replay_e2e.py": "process",
    "packages/agentbox-replay/tests/test_scratch.py": "process",
    "packages/agentbox-trace/tests/test_crash.py": "process",
    "tests/test_cli_bad_input.py": "process",
    "tests/test_demo.py": "process",
    "tests/test_packaging.py": "process",
    "tests/slow": "slow",
}
"""Where tests are that are not `fast`; the first that fits counts (CONTRIBUTING.md, "Tests")."""


def tier(path: Path) -> str:
    """The tier of a test file."""
    return next((name for place, name in TIERS.items() if path.is_relative_to(ROOT / place)), "fast")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(tier(item.path))
