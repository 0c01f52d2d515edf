"""What agentbox costs against the bare command, on the same machine in the same run: the table of `hatch run bench`.

usage: bench.py [--quick]; --quick repeats less. It never fails for a figure: it measures, and says what it could not.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEER = "agentbox-runtime==0.3.0"
QUICK = "--quick" in sys.argv[1:]

COMPUTE = """
import time
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
start = time.perf_counter()
for _ in range(3): fib(24); sum(x * x for x in range(200_000)); {i: str(i) for i in range(50_000)}
print("figure", time.perf_counter() - start)
"""
READ = """
import time
def once():
    with open("data/small.txt", "rb") as file: file.read()
for _ in range(200): once()
start = time.perf_counter()
for _ in range(COUNT): once()
print("figure", (time.perf_counter() - start) / COUNT)
"""
CHILDREN = """
import subprocess, sys, time
start = time.perf_counter()
for _ in range(COUNT): subprocess.run([sys.executable, "-c", "pass"], check=True)
print("figure", (time.perf_counter() - start) / COUNT)
"""
MEMORY = """
for _ in range(COUNT):
    with open("data/small.txt", "rb") as file: file.read()
print("ready", flush=True)
input()
"""


class Way:
    """One way to run a Python program: bare, under agentbox, or under the peer."""

    def __init__(self, name: str, folder: Path, prefix: list[str], *, python: str = sys.executable) -> None:
        self.name = name
        self.folder = folder
        self.prefix = prefix
        self.python = python

    def command(self, *words: str) -> list[str]:
        return [*self.prefix, self.python, *words]

    def seconds(self, *words: str) -> float:
        """Wall time of one run. Raises `CalledProcessError`."""
        start = time.perf_counter()
        subprocess.run(
            self.command(*words), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
        )
        return time.perf_counter() - start

    def figure(self, program: str) -> float:
        """What a program that measures itself prints behind `figure`. Raises `CalledProcessError`."""
        command = self.command("-c", program)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        return float(done.stdout.split("figure ")[1].split()[0])


def interleaved(ways: list[Way], measure: Callable[[Way], float], times: int) -> dict[str, float]:
    """The median of each way, taken in turns so that a slow moment of the machine hits all of them."""
    found: dict[str, list[float]] = {way.name: [] for way in ways}
    for way in ways:
        measure(way)  # warm: caches of files and byte code
    for _ in range(times):
        for way in ways:
            found[way.name].append(measure(way))
    return {name: statistics.median(values) for name, values in found.items()}


def peer(folder: Path) -> tuple[Path | None, str]:
    """A throw-away environment with the peer, or why there is none."""
    venv = folder / "peer"
    try:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True, timeout=120)
        install = [venv / "bin" / "pip", "install", "-q", "--disable-pip-version-check", PEER]
        subprocess.run(install, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", b"") or str(error).encode()
        return None, reason.decode(errors="replace").strip().splitlines()[-1]
    return venv / "bin", ""


def ways(folder: Path) -> tuple[list[Way], str]:
    """Bare, ours and, when it can be installed, the peer; and why not."""
    (folder / "data").mkdir()
    (folder / "data" / "small.txt").write_bytes(b"x" * 200)
    policy = folder / "bench.policy"
    policy.write_text(f"read: ./data\nexec: {sys.executable}\n")
    ours = [
        sys.executable,
        "-m",
        "agentbox.cli",
        "run",
        "--layers",
        "guard",
        "-p",
        str(policy),
        "-t",
        str(folder / "ours.jsonl"),
        "--",
    ]
    command = Path(sys.executable).parent / "agentbox"
    if command.exists():
        ours[:3] = [str(command)]
    found = [Way("bare", folder, []), Way("agentbox", folder, ours)]
    binaries, reason = peer(folder)
    if binaries is not None:
        options = ["-p", str(policy), "-t", str(folder / "peer.jsonl"), "--"]
        found.append(Way("0.3.0", folder, [str(binaries / "agentbox"), "run", *options]))
    return found, reason


def more(figures: dict[str, float], unit: float, digits: int) -> list[str]:
    """Bare, then what each way adds to it, in units of `unit` seconds."""
    bare = figures.pop("bare")
    return [f"{bare / unit:.{digits}f}", *(f"+{(value - bare) / unit:.{digits}f}" for value in figures.values())]


def supervisor_memory(way: Way, count: int) -> float:
    """The largest resident size in MB of the process in front of the agent, after `count` recorded reads."""
    program = MEMORY.replace("COUNT", str(count))
    with subprocess.Popen(
        way.command("-c", program),
        cwd=way.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def row(what: str, figures: list[str], target: str) -> None:
    print(f"{what:<52}" + "".join(f"{figure:>14}" for figure in figures) + f"   {target}", flush=True)


def main() -> int:
    times = 5 if QUICK else 25
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, median of {times}, in turns\n")
    with tempfile.TemporaryDirectory(prefix="agentbox-bench-") as scratch:
        found, reason = ways(Path(scratch))
        row("", [way.name for way in found], "target")
        figures = interleaved(found, lambda way: way.seconds("-c", "pass"), times)
        row("start-up: python -c pass, ms", more(figures, 1e-3, 1), "+60 (+30 with kernel layers)")
        children = CHILDREN.replace("COUNT", "10")
        figures = interleaved(found, lambda way: way.figure(children), max(3, times // 5))
        row("a further guarded Python process, ms (guard's share)", more(figures, 1e-3, 1), "+15")
        figures = interleaved(found, lambda way: way.figure(COMPUTE), max(3, times // 3))
        bare = figures.pop("bare")
        row(
            "pure computation, ms, then ratio",
            [f"{bare * 1e3:.0f}", *(f"{v / bare:.3f} x" for v in figures.values())],
            "1.02 x",
        )
        read = READ.replace("COUNT", "2000")
        figures = interleaved(found, lambda way: way.figure(read), max(3, times // 3))
        row("open + read of a small file, recorded, hashed, us", more(figures, 1e-6, 1), "+40")
        few, many = (supervisor_memory(found[1], count) for count in (100, 20_000))
        row("memory of the supervisor, MB, 100 and 20,000 reads", ["", f"{few:.1f}, {many:.1f}"], "40, flat")
        if reason:
            print(f"\n{PEER} could not be installed: {reason}")
    rates = HERE / "trace_rates.py"
    print(flush=True)
    return subprocess.run([sys.executable, rates, *(["100000"] if QUICK else [])], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
