"""Programs that a run makes itself and starts, as a policy of pasted lines has it: each starts when a rule names it,
nothing else that was made beside it does, and what the kernel would not start is not in the record as started.
"""

import os
import shutil
import sys

import pytest
from test_confined import Box

from agentbox.guard.kernel.grown import grown_folders
from agentbox.policy import parse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

FOLDERS = [
    ("write: ./too[l]\nexec: ./tool\n", ["."]),
    ("write: .\nexec: ./none/tool\nexec: ./build/tool\n", ["."]),
    ("write: ./build/bin\nexec: ./build/bin/tool\n", ["build"]),
    ("write: ../out/a\nexec: ../out/a/b/tool\n", ["../out/a"]),
    ("write: ../out/a/*\nexec: ../out/a/tool\n", ["../out/a"]),
    ("write: ../out/a/note\nwrite: ./build/*.out\nexec: *\n", ["build"]),
    ("write: /tool\nexec: /tool\n", []),
    ("read: .\nwrite: ./build\nexec: ./tool\nexec: sh\n", []),
]
BASE = "exec: cp\nexec: rm\nexec: mkdir\nexec: chmod\nexec: make\nexec: gcc\nread: ./tool.c\nread: ./Makefile\n"
COPY = "rm -f tool; cp /bin/echo tool; ./tool hi"
WAYS = {
    "a copy": (COPY, "write: ./too[l]\nexec: ./tool\n"),
    "a copy under a write root": (COPY, "write: .\nexec: ./tool\n"),
    "a copy under a glob": (COPY, "write: ./t*\nexec: ./tool hi\n"),
    "a copy for any rule": (COPY, "write: ./too[l]\nexec: *\n"),
    "a script": (
        "rm -f tool; printf '#!/bin/sh\\necho hi\\n' > tool; chmod +x tool; ./tool",
        "write: ./too[l]\nexec: ./tool\n",
    ),
    "a folder that is made anew": (
        "rm -rf out; mkdir -p out/bin; cp /bin/echo out/bin/tool; out/bin/tool hi",
        "write: ./out/\nexec: ./out/bin/tool\n",
    ),
    "a build": ("rm -f tool; make -s tool && ./tool", "write: ./too[l]\nexec: ./tool\n"),
    "a build that starts it": ("rm -f tool; make -s run", "write: ./too[l]\nexec: ./tool\n"),
}


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    (made.ws / "tool.c").write_text('#include <stdio.h>\nint main(void) { puts("hi"); return 0; }\n')
    (made.ws / "Makefile").write_text("run: tool\n\t./tool\ntool: tool.c\n\tgcc -o tool tool.c\n")
    return made


@pytest.mark.parametrize(("rules", "folders"), FOLDERS)
def test_a_folder_is_granted_that_the_run_does_not_replace(tmp_path, rules, folders):
    """As small as that can be; none for a program that no write rule covers, and never the root."""
    for name in ("ws/build/bin", "out/a"):
        (tmp_path / name).mkdir(parents=True)
    policy = parse(rules, cwd=str(tmp_path / "ws"))
    wanted = [os.path.normpath(tmp_path / "ws" / folder) for folder in folders]
    assert grown_folders(policy, ("landlock", "seccomp")) == wanted
    assert all(policy.is_writable(folder) for folder in grown_folders(policy, ("landlock",)))


@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_the_run_makes_is_started_in_this_run_and_the_next(box, way):
    """Where it was not there at the start, and where it is another file than then."""
    script, rules = WAYS[way]
    if "build" in way and not (shutil.which("make") and shutil.which("gcc")):
        pytest.skip("there is no make or no C compiler")
    for _ in range(2):
        done = box.run(BASE + rules, "bash", "-c", script)
        assert done.out == "hi\n" and not done.of("proc.exec", "deny"), done.err
        assert any(entry["args"]["file"].endswith("/tool") for entry in done.of("proc.exec"))


@pytest.mark.parametrize("rules", ["write: .\n", "write: ./too[l]\nwrite: ./othe[r]\n"])
def test_what_is_made_beside_it_is_held_by_the_rules(box, rules):
    """Landlock has the whole folder then; each start is decided on by its file all the same."""
    script = "cp /bin/echo tool; cp tool other; ./tool hi; ./other ran; sh -c './other ran'; true"
    assert box.bare("bash", "-c", script).stdout == "hi\nran\nran\n"
    done = box.run(f"{BASE}exec: sh\n{rules}exec: ./tool\n", "bash", "-c", script)
    assert done.out == "hi\n"
    assert [entry["fix"] for entry in done.of("proc.exec", "deny")] == ["exec: ./other ran", "exec: ./other ran"]


def test_other_files_of_the_folder_stay_unreadable(box):
    """The folder is Landlock's alone: what a program reads is decided on by the rules."""
    (box.ws / "private").write_text("private\n")
    script = "cp /bin/cat tool; ./tool private"
    assert box.bare("bash", "-c", script).stdout == "private\n"
    done = box.run(f"{BASE}write: ./too[l]\nexec: ./tool\n", "bash", "-c", script)
    assert not done.out and ("fs.read", f"{box.ws}/private") in done.denied()


def test_a_start_that_the_outer_wall_cannot_allow_is_a_denial(box):
    """A write root outside of the working directory that the run replaces as a whole: told, and not recorded as done;
    the next run starts it where it is left.
    """
    out = f"{box.folder}/outside/out"
    os.mkdir(out)
    make = f"rm -rf {out}; mkdir {out}; cp /bin/echo {out}/tool"
    rules = f"{BASE}write: {out}\nexec: {out}/tool\n"
    assert box.bare("bash", "-c", f"{make}; {out}/tool hi").stdout == "hi\n"
    done = box.run(rules, "bash", "-c", f"{make}; {out}/tool hi")
    (denied,) = done.of("proc.exec", "deny")
    assert not done.out and "came later; the next run can start it" in denied["reason"]
    assert f"{out}/tool" not in [entry["args"]["file"] for entry in done.of("proc.exec")]
    assert box.run(rules, "bash", "-c", f"{out}/tool hi").out == "hi\n"


@pytest.mark.parametrize("line", ["#!/nowhere/sh", "#!./secret", "#!"])
def test_a_script_without_an_interpreter_is_not_recorded_as_started(box, line):
    """Its start fails as it does without the sandbox, and nothing says that it ran."""
    script = box.ws / "script"
    script.write_text(f"{line}\n")
    script.chmod(0o755)
    (box.ws / "secret").write_text("no program\n")
    code = "import os\ntry: os.execv('./script', ['./script'])\nexcept OSError as error: print(error.errno)"
    argv = box.python(code)
    done = box.run("exec: *\nread: .\nread: ../program.py\n", *argv)
    assert done.out == box.bare(*argv).stdout and done.out
    assert not done.of("proc.exec") and not done.of("proc.exec", "deny")


def test_a_refusal_under_a_read_rule_tells_that_reading_is_not_enough(box):
    """The reason is true where a read: rule does cover the program; the line helps."""
    (box.ws / "bin").mkdir()
    shutil.copy("/bin/echo", box.ws / "bin/prog")
    argv = ["bash", "-c", "sh -c './bin/prog hi'; true"]
    assert box.bare(*argv).stdout == "hi\n"
    done = box.run("read: .\nexec: sh\n", *argv)
    (denied,) = done.of("proc.exec", "deny")
    assert denied["reason"].endswith("only what exec: rules name, whatever it may read")
    assert "no read:" not in denied["reason"] and denied["fix"] == "exec: ./bin/prog"
    assert box.run(f"read: .\nexec: sh\n{denied['fix']}\n", *argv).out == "hi\n"
