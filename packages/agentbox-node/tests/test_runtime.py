"""JavaScript programs are recognised by what would really run; options that keep the guard out are told apart."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentbox.node import RUNTIME, NodeError, NodeUnguardable, NodeUnsupported, flags
from agentbox.node.runtime import SHIM


def command(file: Path | str, *words: str, write_roots: tuple[str, ...] = (), cwd: str = "/") -> SimpleNamespace:
    """What the guard hands to a runtime."""
    return SimpleNamespace(
        file=str(file),
        argv=[os.path.basename(file), *words],
        cwd=cwd,
        environ={"PATH": "/nowhere"},
        write_roots=write_roots,
    )


def script(path: Path, first_line: str) -> Path:
    path.write_text(first_line + "\nconsole.log(1)\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def node_file(tmp_path):
    path = tmp_path / "bin" / "node"
    path.parent.mkdir()
    path.touch(mode=0o755)
    return path


@pytest.mark.parametrize("name", ["deno", "bun", "bunx"])
def test_other_engines_are_refused_by_name(tmp_path, name):
    """Deno and Bun are told apart from Node, with what can be done instead."""
    with pytest.raises(NodeUnsupported) as caught:
        RUNTIME.recognise(command(tmp_path / name, "agent.js"))
    assert str(caught.value) == f"{name}: {name} cannot be guarded by agentbox-node 0.1"
    assert (caught.value.code, caught.value.status, caught.value.unconfinable) == ("node-unsupported", 69, True)
    assert isinstance(caught.value, NodeError)


def test_a_script_is_started_by_its_interpreter(tmp_path, node_file):
    """A script with a node `#!` line is started as node with the script; its folder is listable."""
    path = script(tmp_path / "tool", f"#!{node_file} --no-warnings")
    launch = RUNTIME.recognise(command(path, "a"))
    assert (launch.runtime, launch.arms, launch.script, launch.listable) == ("node", True, str(path), str(tmp_path))
    assert launch.argv[-3:] == ["--no-warnings", str(path), "a"]
    assert launch.file == str(node_file)


def test_env_in_front_is_looked_through(tmp_path, node_file):
    """`#!/usr/bin/env node` and `env NAME=value node` are node; env -i would remove the guard's variables."""
    path = script(tmp_path / "tool", "#!/usr/bin/env node")
    found = command(path)
    found.environ = {"PATH": str(node_file.parent)}
    assert RUNTIME.recognise(found).script == str(path)
    env = command("/usr/bin/env", "A=b", str(node_file), "agent.js")
    assert RUNTIME.recognise(env).extra == {"A": "b"}
    with pytest.raises(NodeUnguardable, match="env -i"):
        RUNTIME.recognise(command("/usr/bin/env", "-i", str(node_file), "agent.js"))
    with pytest.raises(NodeUnguardable, match="NODE_OPTIONS"):
        RUNTIME.recognise(command("/usr/bin/env", "NODE_OPTIONS=", str(node_file), "agent.js"))


def test_a_link_to_node_is_node_whatever_it_is_called(tmp_path, node_file):
    """The file that a link leads to decides, not the name of the link."""
    (tmp_path / "python").symlink_to(node_file)
    assert RUNTIME.recognise(command(tmp_path / "python", "x.js")).runtime == "node"


@pytest.mark.parametrize("first_line", ["#!/usr/bin/env python3", "#!/bin/sh", "no script", "#!", ""])
def test_other_programs_are_left_to_other_runtimes(tmp_path, first_line):
    """What is no JavaScript program is not this runtime's business."""
    assert RUNTIME.recognise(command(script(tmp_path / "tool", first_line))) is None


@pytest.mark.parametrize("file", ["/nonexistent/tool", "/", "/usr/bin/env"])
def test_what_cannot_be_read_is_left_to_other_runtimes(file):
    """A missing file, a folder, or env without a command is not this runtime's business."""
    assert RUNTIME.recognise(command(file)) is None


def test_a_script_that_names_itself_ends(tmp_path):
    """A `#!` line that leads back to its own script does not loop."""
    path = tmp_path / "loop"
    assert RUNTIME.recognise(command(script(path, f"#!{path}"))) is None


def test_packages_are_readable_unless_the_agent_may_write_them(tmp_path, node_file):
    """node_modules of the script's folder and above it need no rule; a write root takes that away."""
    (tmp_path / "node_modules").mkdir()
    agent = tmp_path / "app" / "agent.js"
    agent.parent.mkdir()
    agent.touch()
    packages = str(tmp_path / "node_modules")
    assert packages in RUNTIME.recognise(command(node_file, str(agent))).readable
    for root in (str(tmp_path), packages, packages + "/.cache"):
        assert packages not in RUNTIME.recognise(command(node_file, str(agent), write_roots=(root,))).readable


def test_the_nearest_package_file_and_the_links_to_the_script_are_readable(tmp_path, node_file):
    """What Node itself reads and looks at before the script runs, and no package file above the nearest."""
    for folder in ("", "app", "app/lib"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "app" / "package.json").write_text("{}")
    (tmp_path / "app" / "lib" / "cli.js").touch()
    (tmp_path / "tool").symlink_to("app/lib/cli.js")
    launch = RUNTIME.recognise(command(node_file, str(tmp_path / "tool"), cwd=str(tmp_path / "app")))
    assert launch.script == str(tmp_path / "app" / "lib" / "cli.js")
    assert str(tmp_path / "tool") in launch.readable
    assert str(tmp_path / "app" / "package.json") in launch.readable
    assert str(tmp_path / "package.json") not in launch.readable


def test_the_guard_takes_it_as_a_runtime():
    """The row has the form of the guard's own runtimes, and its variable names a file of this package."""
    assert (RUNTIME.name, RUNTIME.guarded) == ("node", True)
    assert RUNTIME.variables(0) == {"NODE_OPTIONS": f"--require {SHIM}"}
    assert os.path.isfile(SHIM)


@pytest.mark.parametrize(
    ("words", "kind", "program"),
    [
        (["agent.js", "--inspect"], "script", "agent.js"),
        (["-r", "./x.js", "agent.js"], "script", "agent.js"),
        (["--require=./x.js", "--", "agent.js"], "script", "agent.js"),
        (["-e", "1", "agent.js"], "code", ""),
        (["-p", "process.version"], "code", ""),
        (["-pe", "1"], "code", ""),
        ([], "stdin", ""),
        (["-"], "stdin", ""),
    ],
)
def test_the_command_line_is_read_as_node_reads_it(words, kind, program):
    """Where the program begins, and that what follows it is its own."""
    line = flags.read(words)
    assert (line.problem, line.kind, line.program) == ("", kind, program)


@pytest.mark.parametrize("words", [["--version"], ["-h"], ["--v8-options"]])
def test_commands_that_only_print(words):
    """No guard is waited for."""
    assert flags.read(words).ends


@pytest.mark.parametrize("flag", [*flags.DISARMING, "--inspect-port=0", "--cpu-prof-dir=/x", "--unheard-of", "inspect"])
def test_options_that_disarm(flag):
    """Each is a problem that names the option."""
    assert flag.partition("=")[0] in flags.read([flag, "agent.js"]).problem


def test_options_with_the_value_that_holds_anyway():
    """What Node's test runner gives to its children is harmless; another value is not."""
    words = [
        "--inspect-port=127.0.0.1:9229",
        "--inspect-publish-uid=stderr,http",
        "--node-snapshot",
        "--v8-pool-size=4",
    ]
    assert flags.read([*words, "--v8-pool-size=4", "--test-isolation=process", "a.test.js"]).problem == ""
    for word in ("--inspect-port=127.0.0.1:9230", "--heapsnapshot-near-heap-limit=1", "--report-signal=SIGUSR1"):
        assert flags.read([word, "a.test.js"]).problem


def test_a_process_that_only_watches_takes_no_guard_in():
    """Node loads no preload into it; the test runner is guarded also where it watches."""
    assert "--watch starts" in flags.read(["--watch", "agent.js"]).problem
    assert "--watch-path starts" in flags.read(["--watch-path=.", "agent.js"]).problem
    assert flags.read(["--watch", "--test"]).problem == flags.read(["--watch", "--version"]).problem == ""
    assert flags.read(["agent.js", "--watch"]).problem == ""


def test_a_child_is_judged_by_the_same_flags(node_file):
    """What a guarded process would start: fine, disarmed, or not a JavaScript program."""
    assert RUNTIME.problem(str(node_file), ["node", "x.js"], "/", "") == ""
    assert "--env-file" in RUNTIME.problem(str(node_file), ["node", "--env-file=x", "x.js"], "/", "")
    assert RUNTIME.problem("/bin/sh", ["sh"], "/", "") is None
