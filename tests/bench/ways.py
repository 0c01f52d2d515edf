"""How a program is run for a measurement (bare, under agentbox, under something else), timed and printed as a table.

It measures and never judges: the machine decides what the numbers are worth.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

BARE = "bare"
NONE = "-"
"""Printed where a way cannot do what is measured."""


class Way:
    """One way to run a program: `prefix` in front of the command, in `folder`."""

    def __init__(self, name: str, folder: Path, prefix: list[str]) -> None:
        self.name = name
        self.folder = folder
        self.prefix = prefix

    def seconds(self, *command: str) -> float:
        """Wall time of one run. Raises `CalledProcessError`."""
        start = time.perf_counter()
        self._run(command)
        return time.perf_counter() - start

    def figure(self, *command: str) -> float:
        """What a program that measures itself prints behind `figure`. Raises `CalledProcessError`."""
        return float(self._run(command).split("figure ")[1].split()[0])

    def memory(self, *command: str) -> float:
        """The largest resident size in MB of the process in front of the agent, when the agent has said `ready`."""
        with subprocess.Popen(
            [*self.prefix, *command],
            cwd=self.folder,
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

    def _run(self, command: tuple[str, ...]) -> str:
        done = subprocess.run([*self.prefix, *command], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip() or f"status {done.returncode}"
            raise SystemExit(f"bench: {self.name}: {' '.join(command)[:60]}: {said}")
        return done.stdout


def agentbox(name: str, folder: Path, policy: str, *options: str) -> Way:
    """A run of the agentbox that is installed beside this interpreter, with a policy's text."""
    file = folder / f"{name}.policy"
    file.write_text(policy)
    command = Path(sys.executable).parent / "agentbox"
    start = [str(command)] if command.exists() else [sys.executable, "-m", "agentbox.cli"]
    return Way(name, folder, [*start, "run", *options, "-p", str(file), "-t", str(folder / f"{name}.jsonl"), "--"])


def lowest(ways: list[Way], measure: Callable[[Way], float], times: int) -> dict[str, float]:
    """The lowest of each way, taken in turns: what is longer was somebody else's work, which so hits all of them."""
    found: dict[str, list[float]] = {way.name: [] for way in ways}
    for way in ways:
        measure(way)  # warm: caches of files and byte code
    for _ in range(times):
        for way in ways:
            found[way.name].append(measure(way))
    return {name: min(values) for name, values in found.items()}


class Table:
    """Prints rows with one column for each way, bare first, in the order of `names`."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self.row("", {name: name for name in names}, "target")

    def row(self, what: str, figures: Mapping[str, str], target: str) -> None:
        """One row of texts; a way that has none could not do it."""
        cells = "".join(f"{figures.get(name, NONE):>14}" for name in self._names)
        print(f"{what:<56}{cells}   {target}", flush=True)

    def more(self, what: str, figures: dict[str, float], unit: float, digits: int, target: str) -> None:
        """Bare, then what each way adds to it, in units of `unit` seconds."""
        bare = figures[BARE]
        texts = {name: f"{(value - bare) / unit:+.{digits}f}" for name, value in figures.items()}
        self.row(what, {**texts, BARE: f"{bare / unit:.{digits}f}"}, target)

    def ratio(self, what: str, figures: dict[str, float], digits: int, target: str) -> None:
        """Bare in milliseconds, then each way's ratio to it."""
        bare = figures[BARE]
        texts = {name: f"{value / bare:.{digits}f} x" for name, value in figures.items()}
        self.row(what, {**texts, BARE: f"{bare * 1e3:.1f}"}, target)


def heading(text: str) -> None:
    """A line between tables."""
    print(f"\n{text}\n", flush=True)


def machine() -> str:
    """What the figures were taken on."""
    system = os.uname()
    return f"Python {sys.version.split()[0]}, {system.sysname} {system.release}, {os.cpu_count()} CPUs"
