"""What hostile programs try, line by line: the table of docs/reference/attempts.md, and the tests that prove each line.

A test names its lines with `@pytest.mark.attempt("F1", ...)`; a line without a test, and a mark without a line, are
errors.
"""

from __future__ import annotations

import ast
from pathlib import Path

GROUPS = {"F": "Files", "N": "Network", "P": "Processes", "C": "Configuration"}

ATTEMPTS: dict[str, tuple[str, str]] = {
    "F1": ("writing through a link whose target is not there yet, or below a folder that is a link", ""),
    "F2": ("exchanging a link between the look and the open, all the while", ""),
    "F3": ("renaming a folder so that something protected comes or goes with it", ""),
    "F4": ("a hard link from outside into the workspace, then writing to it", ""),
    "F5": ("`/proc/self/root`, `/proc/self/cwd/..`, `/proc/thread-self/fd/N`, `/dev/fd/N`", ""),
    "F6": (
        "owners, modes, times, attributes, nodes, pipes, links, folders, sizes outside, by name or by reference",
        "",
    ),
    "F7": (
        "files that make others run code (`.git/hooks`, `.mcp.json`, `.claude`, shell start-up files), there or not, in"
        " any letter case, at any depth, in work trees; nothing is left behind by their protection",
        "",
    ),
    "F8": ("odd names: slashes, dots, no UTF-8, NUL, too long; bytes, paths and texts that change their answer", ""),
    "F9": ("names relative to a descriptor or after `fchdir`; descriptors that were inherited or sent", ""),
    "F10": ("`open_by_handle_at`, `openat2`, opens of io_uring", ""),
    "F11": ("the policy, the trace, agentbox's code and the interpreter, under a write rule that covers them", ""),
    "F12": ("the machine's `/tmp`, `/dev/shm`, `/run`, `/sys` and other processes' `/proc`", ""),
    "N1": ("a connection without any rule", ""),
    "N2": ("plain HTTP where HTTPS would be refused, and the other way round", ""),
    "N3": ("getting out by a proxy", ""),
    "N4": ("names before, behind and around an allowed one; user names in addresses, letter case, dots, IDNA, NUL", ""),
    "N5": (
        "addresses as decimal, octal, hexadecimal or short numbers, `0`, `::`, IPv4 in IPv6, 6to4, NAT64, zones",
        "",
    ),
    "N6": (
        "an allowed name that leads to loopback, a private or link-local range or this machine's own address, at once"
        " or the second time",
        "an address that a router or a firewall translates to such a one is not seen",
    ),
    "N7": (
        "names as a channel: the C library's calls, raw queries over UDP and TCP, the sockets of name daemons",
        "below an allowed `*.name` any label may be asked for",
    ),
    "N8": (
        "UDP, TCP Fast Open by each of its calls, MPTCP, SCTP, SMC, raw, packet, VM, netlink and algorithm sockets",
        "",
    ),
    "N9": ("local sockets by path and by abstract name", ""),
    "N10": ("the allowed port of another host", ""),
    "N11": (
        "binding and listening for others without a rule (the loopback of a run's own network is its own)",
        "",
    ),
    "N12": ("a redirection from an allowed server to another, in the SDK and in client libraries", ""),
    "P1": ("tracing, reading, signalling and changing the supervisor and other processes", ""),
    "P2": ("questions about `self`: the answer must be the asker's", ""),
    "P3": (
        "a path, an address or arguments that a second thread rewrites after they were decided on",
        "an exec is compared after the fact, and killed: a program without a loader may compute until its first trapped"
        " call",
    ),
    "P4": ("floods of calls, no descriptor left, a slow, stopped or dead supervisor", ""),
    "P5": ("calls of another architecture, pushing input into terminals, also with high bits set", ""),
    "P6": (
        "user faults, BPF, keys, namespaces, mounts, performance events, kernel images and modules",
        "",
    ),
    "P7": (
        "copies and renamed copies of an allowed program, links, scripts, `env -S`, `sh -c`, memory files, the loader",
        "what an allowed program starts in turn is recorded and confined, not judged",
    ),
    "P8": ("`LD_PRELOAD`, `PYTHONPATH`, `NODE_OPTIONS`, `BASH_ENV`, `GIT_*` and the like for a child", ""),
    "P9": ("git configuration that runs programs, under a rule for some of git's commands", ""),
    "P10": (
        "processes, memory and descriptors without end",
        "the machine's own limits on processes and memory are not lowered: the supervisor stays, others may suffer",
    ),
    "P11": (
        "a daemon that leaves its parents",
        "without netns one lives on if the supervisor itself is killed with -9: it may compute, and nothing else",
    ),
    "P12": ("the interpreter without its guard, in an empty environment, another one, a static program", ""),
    "P13": (
        "killing the supervisor with -9",
        "without netns an orphan lives on, and may compute: it opens, connects, starts and forks nothing any more",
    ),
    "P14": (
        "steering an allowed program by what survives its start: seccomp filters, personality, ignored signals",
        "a program that takes the end of any child for that of its own can be told a false one",
    ),
    "C1": ("widening the policy from inside, in this run or for the next", ""),
    "C2": ("unknown keys, typing errors, empty and unreadable policies", ""),
    "C3": ("a machine without a layer", ""),
    "C4": ("anything that would have to ask somebody", ""),
}
"""By line: what is tried, and what is not held of it ("" if nothing)."""


def tests(root: Path) -> dict[str, list[str]]:
    """The tests of each line, as `file::function` below the packages. Raises `LookupError` for a mark
    without a line and a line without a test.
    """
    found: dict[str, list[str]] = {line: [] for line in ATTEMPTS}
    for path in sorted(root.glob("packages/*/tests/**/test_*.py")) + sorted(root.glob("tests/test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for line in _lines(node):
                    found[line].append(f"{path.relative_to(root)}::{node.name}")
    if without := [line for line, names in found.items() if not names]:
        raise LookupError(f"no test proves {', '.join(without)}")
    return found


def _lines(function: ast.FunctionDef) -> list[str]:
    return [
        ast.literal_eval(argument)
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.attempt"
        for argument in mark.args
    ]


def table(root: Path) -> str:
    """The lines as Markdown tables, a group each."""
    proved = tests(root)
    lines = []
    for letter, title in GROUPS.items():
        lines += [f"## {title}", "", "| | attempt | result | proved by |", "|---|---|---|---|"]
        for name, (what, limit) in ATTEMPTS.items():
            if name.startswith(letter):
                names = ", ".join(f"`{test.rpartition('/')[2].replace('.py', '')}`" for test in proved[name])
                lines.append(f"| {name} | {what} | held{f', but: {limit}' if limit else ''} | {names} |")
        lines.append("")
    return "\n".join(lines)
