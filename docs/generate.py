"""Fills what pages and scripts repeat from the code: the blocks `<!-- generated: NAME -->` to `<!-- /generated -->`.

usage: generate.py [--check]; with --check nothing is written, and a stale block is an error.
Never touches text outside of such blocks.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import attempts

from agentbox.cli import exitcodes, help
from agentbox.cli.commands import NAMES, load
from agentbox.guard.kernel import protected
from agentbox.guard.kernel.holds import HOLDS, NEEDS, UNHELD
from agentbox.policy import KINDS

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- generated: (?P<name>.+?) -->\n).*?((?:// )?<!-- /generated -->)", re.DOTALL)


def exit_table() -> str:
    """The exit statuses as a Markdown table."""
    rows = [f"| {status} | {who} | {meaning} |" for status, who, meaning in exitcodes.TABLE]
    return "\n".join(["| status | given by | meaning |", "|---|---|---|", *rows, ""])


def layers() -> str:
    """What each layer needs, and one section per rule kind: who holds what, and what nobody holds."""
    rows = [f"| {name} | {needs} |" for name, needs in NEEDS.items()]
    lines = ["| layer | needs |", "|---|---|", *rows, ""]
    for kind in KINDS:
        lines += [f"## {kind}", "", "| held by | what |", "|---|---|"]
        lines += [f"| {_label(name)} | {text} |" for name, text in HOLDS[kind].items()]
        lines += [f"| **NOT enforced** | {UNHELD[kind]} |", ""]
    return "\n".join(lines)


def protected_names() -> str:
    """The names of the built-in protection, by what makes them one."""
    rows = (
        ("folders, at any depth", protected.FOLDERS),
        ("files, at any depth", protected.FILES | {f"*{ending}" for ending in protected.ENDINGS}),
        ("folders in a folder, at any depth", protected.INNER_FOLDERS),
        ("files in a folder, at any depth", protected.INNER_FILES),
        ("Python modules (`.py`, `.pyc`, `.so`), at any depth", protected.OWN_MODULES),
        ("folders in a home folder", protected.HOME_FOLDERS),
        ("files in a home folder", protected.HOME_FILES),
    )
    lines = [f"| {what} | {', '.join(f'`{name}`' for name in sorted(names))} |" for what, names in rows]
    return "\n".join(["| what | names, in any letter case |", "|---|---|", *lines, ""])


def protected_tables() -> str:
    """The same for the guard of Node, as JavaScript."""
    tables = {
        "folders": protected.FOLDERS,
        "files": protected.FILES,
        "endings": protected.ENDINGS,
        "innerFolders": protected.INNER_FOLDERS,
        "innerFiles": protected.INNER_FILES,
        "ownModules": protected.OWN_MODULES,
        "moduleEndings": protected.MODULE_ENDINGS,
        "homeFolders": protected.HOME_FOLDERS,
        "homeFiles": protected.HOME_FILES,
        "vendored": protected.VENDORED,
        "ignored": protected.IGNORED,
    }
    reasons = {
        "hook": protected.HOOK_REASON,
        "folder": protected.FOLDER_REASON,
        "file": protected.FILE_REASON,
        "config": protected.CONFIG_REASON,
        "builtin": protected.BUILTIN,
    }
    lines = [f"const REASONS = {json.dumps(reasons)};", "const TABLES = {", "  __proto__: null,"]
    lines += [f"  {name}: {json.dumps(sorted(table))}," for name, table in tables.items()]
    return "\n".join([*lines, "};", ""])


def _label(name: str) -> str:
    return f"{name} (unverified)" if name == "seatbelt" else name


def commands() -> str:
    """One section per subcommand, with its help."""
    return "\n".join(f"## agentbox {name}\n\n```\n{help.command(load(name))}\n```\n" for name in NAMES)


BLOCKS = {
    "attempts": lambda: attempts.table(ROOT),
    "agentbox --help": lambda: f"```\n{help.overview()}\n```\n",
    "exit statuses": exit_table,
    "commands": commands,
    "layers": layers,
    "protected names": protected_names,
    "protected names in JavaScript": protected_tables,
}


def filled(text: str) -> str:
    """`text` with every block as it should be. Raises `KeyError` for a block of an unknown name."""
    return BLOCK.sub(lambda match: match[1] + BLOCKS[match["name"]]() + match[3], text)


def main(check: bool) -> int:
    stale = []
    scripts = ROOT.glob("packages/agentbox-node/src/**/*.cjs")
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md"), *scripts]:
        old = page.read_text(encoding="utf-8")
        new = filled(old)
        if new != old:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(new, encoding="utf-8")
    if stale:
        print("stale, run `hatch run docs`:" if check else "written:", *stale)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
