"""Runs real programs bare and under agentbox, and prints a table: `hatch run slow [NAME...]`.

It installs what it can and skips by name, with the reason, what it cannot have. Status 1 if a program that works bare
does not work contained.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from program import Done, Program
from programs import PROGRAMS

SECONDS = 600  # after which a program is taken to hang
INSTALL = ["apt-get", "install", "-qq", "-y", "--no-install-recommends"]


class Tools:
    """What has been installed for the programs; `path` is where they find it."""

    def __init__(self, folder: Path) -> None:
        self.venv = folder / "venv"
        self.path = f"{self.venv}/bin:{os.environ['PATH']}"

    def lack(self, program: Program) -> str:
        """Install what a program needs. Why it cannot be had, or ""."""
        missing = [name for name in program.commands if shutil.which(name, path=self.path) is None]
        if missing and program.debian and os.geteuid() == 0 and shutil.which("apt-get"):
            subprocess.run([*INSTALL, *program.debian], capture_output=True, check=False)
            missing = [name for name in missing if shutil.which(name, path=self.path) is None]
        if missing:
            return f"{', '.join(missing)}: not installed"
        if program.pip:
            if not self.venv.exists():
                subprocess.run([sys.executable, "-m", "venv", str(self.venv)], check=True)
            done = run(
                [f"{self.venv}/bin/python", "-m", "pip", "install", "-q", *program.pip], self.venv, dict(os.environ)
            )
            if done.returncode:
                return f"pip install {' '.join(program.pip)}: {(done.stderr.splitlines() or ['failed'])[-1]}"
        return ""


def run(argv: list[str], folder: Path, environ: dict[str, str]) -> Done:
    """Run a command; one that does not end is ended, with status 124."""
    try:
        return subprocess.run(
            argv,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        said = [(text or b"").decode(errors="replace") for text in (error.stdout, error.stderr)]
        return Done(argv, 124, said[0], f"{said[1]}\nended after {SECONDS} s")


def attempt(program: Program, tools: Tools, folder: Path, *, contained: bool) -> tuple[bool, Done]:
    """Whether the program does its work in a new folder, and what it said."""
    (folder / "out").mkdir(parents=True)
    (folder / "home").mkdir()
    given = {"folder": str(folder), **(program.prepare(folder) or {})}

    def filled(text: str) -> str:
        for name, value in given.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    environ = {name: os.environ[name] for name in ("LANG", "LC_ALL", "JAVA_HOME") if name in os.environ}
    environ |= {"PATH": tools.path, "HOME": str(folder / "home")}
    environ |= {name: filled(value) for name, value in program.environ.items()}
    argv = [filled(word) for word in program.argv]
    if contained:
        (folder / "agentbox.policy").write_text(filled(program.policy))
        argv = [sys.executable, "-m", "agentbox.cli", "run", "--", *argv]
    done = run(argv, folder, environ)
    return program.works(folder, done), done


def row(*cells: str) -> None:
    print("{:<20} {:<8} {:<10} {}".format(*cells), flush=True)


def main(names: list[str]) -> int:
    """Run the programs whose name begins with one of the names, or all."""
    chosen = [one for one in PROGRAMS if not names or any(one.name.startswith(name) for name in names)]
    failed = []
    row("program", "bare", "contained", "note")
    with tempfile.TemporaryDirectory(prefix="agentbox-slow-") as made:
        base = Path(made).resolve()
        tools = Tools(base)
        for number, program in enumerate(chosen):
            if why := tools.lack(program):
                row(program.name, "skipped", "skipped", why)
                continue
            bare, told = attempt(program, tools, base / f"{number}-bare", contained=False)
            if not bare:
                row(
                    program.name,
                    "fails",
                    "skipped",
                    (told.stderr.strip().splitlines() or ["it says nothing"])[-1][:120],
                )
                continue
            works, done = attempt(program, tools, base / f"{number}-contained", contained=True)
            awaits = f"; awaits {program.awaits}" if program.awaits and not works else ""
            row(program.name, "works", "works" if works else "FAILS", program.note + awaits)
            if not works:
                failed.append((program.name, done))
    for name, done in failed:
        print(f"\n--- {name}: status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
