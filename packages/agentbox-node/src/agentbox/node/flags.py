"""The node command line, read as Node reads it: which options leave the guard in place, and where the program begins.

It only splits words (doc/api/cli.md, Node 20 to 24). An option that is not listed is a problem, never a guess.
"""

from __future__ import annotations

_VALUED = frozenset((
    *("-C", "--conditions", "-r", "--require", "--import", "--input-type", "--title", "--stack-trace-limit"),
    *("--unhandled-rejections", "--dns-result-order", "--disable-warning", "--experimental-default-type"),
    *("--max-http-header-size", "--test-name-pattern", "--test-reporter", "--test-concurrency", "--test-timeout"),
    *("--secure-heap", "--secure-heap-min", "--network-family-autoselection-attempt-timeout"),
    *("--watch-path", "--test-isolation", "--tls-cipher-list", "--v8-pool-size", "--watch-kill-signal"),
))  # fmt: skip
"""Harmless options that take a value, as `--option=value` or as the next word."""

_PLAIN = frozenset((
    *("-i", "--interactive", "--abort-on-uncaught-exception", "--enable-source-maps", "--expose-gc", "--expose_gc"),
    *("--no-warnings", "--warnings", "--no-deprecation", "--trace-deprecation", "--throw-deprecation", "--test"),
    *("--pending-deprecation", "--trace-warnings", "--trace-uncaught", "--trace-exit", "--trace-sigint", "--test-only"),
    *("--preserve-symlinks", "--preserve-symlinks-main", "--insecure-http-parser", "--force-fips", "--enable-fips"),
    *("--use-openssl-ca", "--use-bundled-ca", "--use-system-ca", "--no-addons", "--no-global-search-paths", "--watch"),
    *("--tls-min-v1.0", "--tls-min-v1.1", "--tls-min-v1.2", "--tls-min-v1.3", "--tls-max-v1.2", "--tls-max-v1.3"),
    *("--zero-fill-buffers", "--disable-sigusr1", "--no-network-family-autoselection", "--node-memory-debug"),
    *("--verify-base-objects", "--watch-preserve-output", "--entry-url", "--disable-wasm-trap-handler"),
    *("--test-force-exit", "--trace-require-module", "--experimental-addon-modules"),
    *("--experimental-vm-modules", "--experimental-strip-types", "--experimental-transform-types", "--strip-types"),
    *("--experimental-wasm-modules", "--experimental-json-modules", "--experimental-require-module"),
    *("--experimental-detect-module", "--experimental-import-meta-resolve", "--experimental-websocket"),
    *("--experimental-eventsource", "--experimental-sqlite", "--experimental-fetch", "--no-strip-types"),
    *("--no-experimental-fetch", "--no-experimental-require-module", "--no-experimental-strip-types"),
    *("--no-experimental-websocket", "--no-experimental-sqlite", "--no-experimental-detect-module"),
    *("--no-experimental-global-navigator", "--no-experimental-repl-await", "--no-verify-base-objects"),
))  # fmt: skip

_NUMBERED = ("--max-old-space-size", "--max_old_space_size", "--max-semi-space-size", "--stack-size", "--stack_size")
"""Sizes of the V8 engine, which take their value after `=`."""

_AS_EVER = frozenset((
    *("--cpu-prof-interval=1000", "--heap-prof-interval=524288", "--heapsnapshot-near-heap-limit=0", "--node-snapshot"),
    *("--inspect-port=127.0.0.1:9229", "--inspect-publish-uid=stderr,http", "--report-signal=SIGUSR2"),
    *("--trace-event-file-pattern=node_trace.${rotation}.log", "--use-largepages=off"),
))  # fmt: skip
"""What holds without a word too: the test runner of Node 24 gives each file's process every option with its default."""

_ENDING = frozenset(("-h", "--help", "-v", "--version", "--v8-options", "--completion-bash"))

_CODE = ("-e", "--eval", "-p", "--print", "-pe")

DISARMING = {
    "--build-sea": "packs files into a program without starting the guard",
    "--build-snapshot": "builds a snapshot, in which the guard's connection would be frozen",
    "--build-snapshot-config": "builds a snapshot, in which the guard's connection would be frozen",
    "--check": "reads files before the guard is live",
    "-c": "reads files before the guard is live",
    "--cpu-prof": "writes files that no guard sees",
    "--env-file": "reads files before the guard is live",
    "--env-file-if-exists": "reads files before the guard is live",
    "--experimental-config-file": "reads options before the guard is live",
    "--experimental-default-config-file": "reads options before the guard is live",
    "--experimental-loader": "starts a thread before the guard is live",
    "--experimental-permission": "takes away the bindings that the guard stands in",
    "--experimental-sea-config": "packs files into a program without starting the guard",
    "--expose-internals": "hands out what is below every guard",
    "--expose_internals": "hands out what is below every guard",
    "--frozen-intrinsics": "freezes the objects that the guard stands in",
    "--heap-prof": "writes files that no guard sees",
    "--heapsnapshot-near-heap-limit": "writes files that no guard sees",
    "--heapsnapshot-signal": "writes files that no guard sees",
    "--inspect": "opens a debugger, which reaches around the guard",
    "--inspect-brk": "opens a debugger, which reaches around the guard",
    "--inspect-wait": "opens a debugger, which reaches around the guard",
    "--loader": "starts a thread before the guard is live",
    "--openssl-config": "makes OpenSSL load code",
    "--permission": "takes away the bindings that the guard stands in",
    "--redirect-warnings": "writes files that no guard sees",
    "--run": "starts programs before the guard is live",
    "--snapshot-blob": "starts from a snapshot, in which the guard is not",
    "--tls-keylog": "writes files that no guard sees",
    "--trace-event-categories": "writes files that no guard sees",
}
"""Options that are refused with a reason of their own; every other unknown one is refused as unknown."""


_WATCHING = frozenset(("--watch", "--watch-path"))
_WATCHER = "starts a process that only watches and starts the program again, and takes no guard in"
"""lib/internal/main/watch_mode.js, Node 20 to 24, loads nothing that --require names; the test runner does, and goes
first (StartExecution in src/node.cc).
"""


class CommandLine:
    """`problem`: why a guard could not arm under these words. `ends`: node only prints and ends, as for --version.

    `kind` is `script`, `code` (-e, -p) or `stdin`; `program` is the script as written. `watches` is the option that has
    the program started again and again, and `tests` says that the test runner does it.
    """

    __slots__ = ("ends", "kind", "problem", "program", "tests", "watches")

    def __init__(self) -> None:
        self.problem = ""
        self.ends = False
        self.kind = "stdin"
        self.program = ""
        self.tests = False
        self.watches = ""


def read(words: list[str]) -> CommandLine:
    """Read the words after the interpreter's name."""
    line = CommandLine()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--" or word == "-":
            if rest and word == "--" and line.kind != "code":
                line.kind, line.program = "script", rest[0]
            break
        if not word.startswith("-"):
            if line.kind != "code":
                line.kind, line.program = "script", word
                if word == "inspect" or word == "debug":
                    line.problem = f"{word} starts a debugger, which reaches around the guard"
            break
        _option(word, rest, line)
    if line.watches and not line.tests and not line.ends:
        line.problem = line.problem or f"{line.watches} {_WATCHER}"
    if line.ends and not line.problem:
        line.program = ""
    return line


def _option(word: str, rest: list[str], line: CommandLine) -> None:
    name, equals, _ = word.partition("=")
    if word in _AS_EVER:
        return
    if name in _WATCHING:
        line.watches = name
    line.tests = line.tests or word == "--test"
    if name in _CODE:
        line.kind = "code"
        # `-p` alone prints the program that follows -e or standard input; its own text may be the next word.
        if not equals and rest and (name in ("-e", "--eval", "-pe") or not rest[0].startswith("-")):
            rest.pop(0)
    elif name in _ENDING:
        line.ends = True
    elif name in _VALUED:
        if not equals and rest:
            rest.pop(0)
    elif name in DISARMING or any(name.startswith(stem + "-") for stem in ("--inspect", "--cpu-prof", "--heap-prof")):
        reason = (
            DISARMING.get(name)
            or DISARMING[next(s for s in ("--inspect", "--cpu-prof", "--heap-prof") if name.startswith(s))]
        )
        line.problem = line.problem or f"{name} {reason}"
    elif word not in _PLAIN and not (equals and name in _NUMBERED) and not name.startswith("--test-coverage-"):
        line.problem = line.problem or f"{name} is not an option that agentbox knows of node"
