"""Types a README's quickstart in an empty folder and compares what comes out with what the README says.

usage: quickstart.py README.md BIN; BIN is the folder of an installed `agentbox`, so `pip install` lines are not run.
It never forgives a line: all of them count, in order; `…` stands for what differs from run to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SECTION = re.compile(r"<!-- quickstart.*?-->\n(.*?)<!-- /quickstart -->", re.DOTALL)
BLOCK = re.compile(r"(?:`(?P<file>[^`\n]+)`:\n\n)?```(?P<language>\w+)\n(?P<body>.*?)```\n", re.DOTALL)


def steps(readme: str) -> list[tuple[str, str, list[str]]]:
    """What the section asks for, in order: ("file", name, lines) and ("run", command, expected lines)."""
    section = SECTION.search(readme)
    if section is None:
        raise SystemExit("quickstart: the README has no quickstart section")
    found: list[tuple[str, str, list[str]]] = []
    for block in BLOCK.finditer(section[1]):
        lines = block["body"].splitlines()
        if block["language"] != "console":
            found.append(("file", block["file"], lines))
            continue
        for line in lines:
            if line.startswith("$ "):
                found.append(("run", line[2:], []))
            else:
                found[-1][2].append(line)
    return found


def matches(expected: list[str], got: list[str]) -> bool:
    """Whether every line fits; `…` in an expected line fits any text, but never another line."""
    patterns = [".*".join(re.escape(part) for part in line.split("…")) for line in expected]
    return len(patterns) == len(got) and all(re.fullmatch(*pair) for pair in zip(patterns, got, strict=True))


def run(command: str, folder: str, binaries: str) -> tuple[list[str], list[str]]:
    """The lines of standard output and of standard error of one command, typed into a shell."""
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def main(readme: str, binaries: str, folder: str) -> int:
    wrong = 0
    for what, text, lines in steps(Path(readme).read_text(encoding="utf-8")):
        if what == "file":
            Path(folder, text).write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(f"(wrote {text})")
            continue
        print(f"$ {text}")
        if text.startswith("pip install "):
            print("(installed from the wheels just built)")
            continue
        out, messages = run(text, folder, binaries)
        print(*messages, *out, sep="\n")
        # How the two streams mix on a screen is a matter of microseconds: each is compared by itself.
        said = [line for line in lines if line.startswith("agentbox: ")]
        if not (matches(said, messages) and matches([line for line in lines if line not in said], out)):
            wrong += 1
            print("DIFFERS from the README, which says:", *lines, sep="\n    ")
    print(f"quickstart: {wrong} of the commands differ from the README" if wrong else "quickstart: as documented")
    return 1 if wrong else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="quickstart-") as scratch:
        sys.exit(main(sys.argv[1], os.path.abspath(sys.argv[2]), scratch))
