"""Measures the trace: entries appended per second, and the time to verify a large one against `sha256sum` of the file.

It prints and never judges: the machine decides what the numbers are worth.
Usage: python tests/bench/trace_rates.py [LINES]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from agentbox.trace import Redactor, TraceWriter, verify

REPEATS = 5


def fill(path: str, lines: int, redactor: Redactor | None) -> float:
    """Write a sealed trace of `lines` typical lines (about 280 bytes) and return the seconds, its writes included."""
    writer = TraceWriter.create(path, redactor=redactor)
    start = time.perf_counter()
    writer.append("meta", "run.start", args={"run": "bench"}, src="supervisor")
    for number in range(lines - 2):
        args = {"path": f"/w/{number % 1000}.txt", "sha256": "3f7a9c1e" * 8, "size": number}
        writer.append("observe", "fs.read", args=args, pid=4242)
    writer.flush()
    seconds = time.perf_counter() - start
    writer.seal(0, duration=seconds)
    writer.close()
    return seconds


def best(work: Callable[[], object]) -> float:
    """The shortest of some runs, in seconds: what is longer was somebody else's work."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def checked(path: str, processes: int) -> None:
    """Verify, and stop the measurement if that fails: a quick failure would look like a quick check."""
    report = verify(path, processes=processes)
    if not report.ok:
        raise SystemExit(f"trace_rates: {report.message}")


def main() -> None:
    """Measure and print."""
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    secrets = {"GITHUB_TOKEN": "ghp_0123456789abcdef", "OPENAI_API_KEY": "sk-proj-0123456789"}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.jsonl")
        print(f"python {sys.version.split()[0]}, {os.cpu_count()} processors")
        for name, redactor in [
            ("", None),
            (", redactor", Redactor()),
            (", redactor with 2 secrets", Redactor(secrets)),
        ]:
            sample = min(lines, 200_000)
            seconds = []
            for _ in range(REPEATS):
                seconds.append(fill(path, sample, redactor))
                os.unlink(path)
            print(f"append{name}: {sample / min(seconds):,.0f} entries/s")
        fill(path, lines, None)
        print(f"file: {lines:,} lines, {os.path.getsize(path) / 1e6:,.0f} MB")
        sums = None
        if shutil.which("sha256sum"):
            sums = best(lambda: subprocess.run(["sha256sum", path], check=True, stdout=subprocess.DEVNULL))
            print(f"sha256sum: {sums:.2f} s")
        for processes in (1, 2):
            seconds_each = best(lambda processes=processes: checked(path, processes))  # type: ignore[misc]
            ratio = f", {seconds_each / sums:.2f} x sha256sum" if sums else ""
            print(f"verify, {processes} process{'es' * (processes > 1)}: {seconds_each:.2f} s{ratio}")


if __name__ == "__main__":
    main()
