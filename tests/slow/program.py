"""A real program of the slow tier: what it needs, what it is given, and how its success is told from its failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

Done = CompletedProcess[str]


def nothing(folder: Path) -> dict[str, str] | None:
    """A program that needs no files."""
    return None


@dataclass(frozen=True)
class Program:
    """One row of the table. `{folder}` in `policy` and `argv` is the working folder, made anew for each run."""

    name: str
    argv: tuple[str, ...]
    policy: str
    works: Callable[[Path, Done], bool]
    """Whether the program has done its work, by what it left in its folder, its status and what it said."""
    commands: tuple[str, ...] = ()
    """What has to be on PATH; the test is skipped by name where one cannot be had."""
    debian: tuple[str, ...] = ()
    """Packages of Debian that bring the commands; installed where this is root on a Debian."""
    pip: tuple[str, ...] = ()
    """Packages that are installed into a virtual environment of the tier's own, first on PATH."""
    prepare: Callable[[Path], dict[str, str] | None] = nothing
    """Makes its files; what it returns is filled in as `{folder}` is."""
    environ: dict[str, str] = field(default_factory=dict)
    note: str = ""
    awaits: str = ""
    """What it is known to lack as yet; it fails all the same, until it works."""
