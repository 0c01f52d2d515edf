"""JavaScript programs are recognised by what would really run, and refused in one clear line."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentbox.node import RUNTIME, NodeError, NodeUnsupported


def command(file: Path | str, *words: str) -> SimpleNamespace:
    """What the guard hands to a runtime."""
    return SimpleNamespace(file=str(file), argv=[os.path.basename(file), *words])


def script(path: Path, first_line: str) -> Path:
    path.write_text(first_line + "\nconsole.log(1)\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["node", "nodejs", "npx", "npm", "tsx", "deno", "bun"])
def test_a_javascript_program_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """Every program that runs or starts JavaScript is refused, with its name and what can be done instead."""
    with pytest.raises(NodeUnsupported) as caught:
        RUNTIME.recognise(command(tmp_path / name, "agent.js"))
    assert str(caught.value) == (
        f"{name}: JavaScript programs cannot be guarded by agentbox-node 0.1, so nothing was run"
    )
    assert caught.value.hint == "this version runs Python agents"
    assert (caught.value.code, caught.value.status) == ("node-unsupported", 69)
    assert isinstance(caught.value, NodeError)


def test_a_link_to_node_is_refused_whatever_it_is_called(tmp_path: Path) -> None:
    """The file that a link leads to decides, not the name of the link."""
    (tmp_path / "node").touch(mode=0o755)
    (tmp_path / "python").symlink_to(tmp_path / "node")
    with pytest.raises(NodeUnsupported, match=r"python \(run by node\)"):
        RUNTIME.recognise(command(tmp_path / "python"))


@pytest.mark.parametrize(
    "first_line",
    [
        "#!/usr/bin/env node",
        "#! /usr/bin/node --no-warnings",
        "#!/usr/bin/env -S node --test",
        "#!/usr/bin/env -S A=b deno run",
    ],
)
def test_a_script_is_refused_for_its_interpreter(tmp_path: Path, first_line: str) -> None:
    """A script whose `#!` line leads to JavaScript is refused under its own name."""
    with pytest.raises(NodeUnsupported, match=r"tool \(run by (node|deno)\)"):
        RUNTIME.recognise(command(script(tmp_path / "tool", first_line)))


def test_a_script_behind_a_script_is_refused(tmp_path: Path) -> None:
    """The kernel follows several `#!` lines, and so does the runtime."""
    inner = script(tmp_path / "inner", "#!/usr/bin/env node")
    with pytest.raises(NodeUnsupported):
        RUNTIME.recognise(command(script(tmp_path / "outer", f"#!{inner}")))


def test_env_in_front_does_not_hide_node() -> None:
    """`env NAME=value node` is node."""
    with pytest.raises(NodeUnsupported):
        RUNTIME.recognise(command("/usr/bin/env", "-i", "NAME=value", "node", "agent.js"))


@pytest.mark.parametrize("first_line", ["#!/usr/bin/env python3", "#!/bin/sh", "no script", "#!", ""])
def test_other_programs_are_left_to_other_runtimes(tmp_path: Path, first_line: str) -> None:
    """What is no JavaScript program is not this runtime's business."""
    RUNTIME.recognise(command(script(tmp_path / "tool", first_line)))


@pytest.mark.parametrize("file", ["/nonexistent/tool", "/", "/usr/bin/env"])
def test_what_cannot_be_read_is_left_to_other_runtimes(file: str) -> None:
    """A missing file, a folder, or env without a command is not this runtime's business."""
    RUNTIME.recognise(command(file))


def test_a_script_that_names_itself_ends(tmp_path: Path) -> None:
    """A `#!` line that leads back to its own script does not loop."""
    path = tmp_path / "loop"
    RUNTIME.recognise(command(script(path, f"#!{path}")))


def test_the_guard_takes_it_as_a_runtime() -> None:
    """The row has the form of the guard's own runtimes."""
    assert (RUNTIME.name, RUNTIME.guarded, RUNTIME.variables(0)) == ("node", False, {})
