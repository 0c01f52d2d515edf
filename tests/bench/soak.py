"""The long soak of the kernel layers: 200,000 opens, 5,000 starts of programs and 2,000 connections from 50 processes.

It only runs what the suite runs in a short form: packages/agentbox-guard/tests/kernel/soak.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "packages" / "agentbox-guard" / "tests" / "kernel"))

if __name__ == "__main__":
    from soak_run import main

    sys.exit(main())
