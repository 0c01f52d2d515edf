"""Whatever a user gets wrong is said in one clear line with the way out, and ends with the documented status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

from agentbox.cli import exitcodes

COMMAND = [sys.executable, "-m", "agentbox.cli"]
POLICY = "read: ./data\n"


def agentbox(cwd: Path, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the command in `cwd` and keep both streams."""
    environment = {name: value for name, value in os.environ.items() if name not in ("AGENTBOX_DEBUG", "NO_COLOR")}
    return subprocess.run(
        [*COMMAND, *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},  # type: ignore[call-overload]
        text=True,
        timeout=PATIENCE,
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that the command said, without its prefix; fails for a traceback, more lines, or output."""
    assert done.stdout in ("", None)
    assert done.stderr.startswith("agentbox: ") and done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.removeprefix("agentbox: ").rstrip("\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with a good policy and nothing else."""
    (tmp_path / "agentbox.policy").write_text(POLICY)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("rnu",),
            "unknown command 'rnu', expected one of init, run, show, verify, replay, doctor (did you mean run?)",
        ),
        (("--verison",), "unknown option '--verison' (see agentbox --help)"),
        (("help", "rnu"), "no help on 'rnu' (did you mean run?)"),
        (("run",), "run: no command to run (put it behind --, for example: agentbox run -- python agent.py)"),
        (
            ("replay", "--"),
            "replay: no command to run (put it behind --, for example: agentbox replay -- python agent.py)",
        ),
        (("run", "--observ", "--", "true"), "run: unknown option --observ (did you mean --observe?)"),
        (("verify", "--head"), "verify: option --head needs a value (write it as --head HEX)"),
        (
            ("\x1b[31mred",),
            "unknown command '\\x1b[31mred', expected one of init, run, show, verify, replay, doctor"
            " (see agentbox --help)",
        ),
    ],
)
def test_a_wrong_command_line(folder: Path, words: Sequence[str], text: str) -> None:
    """Usage errors name what was got, what was expected, and the way out; status 64."""
    done = agentbox(folder, *words)
    assert (one_line(done), done.returncode) == (text, 64)


@pytest.mark.attempt("C2")
def test_a_missing_policy(tmp_path: Path) -> None:
    """Without a policy nothing runs, and `agentbox init` is suggested."""
    done = agentbox(tmp_path, "run", "--", sys.executable, "-c", "print('ran')")
    assert one_line(done) == (
        "agentbox.policy: no such policy file (write a starter policy with `agentbox init`, or name yours with -p FILE)"
    )
    assert done.returncode == 66


@pytest.mark.attempt("C2")
@pytest.mark.parametrize(
    ("policy", "start"),
    [
        (b"raed: ./data\n", "agentbox.policy:1: "),
        (b"read: ./data\nnet: exa mple.com\n", "agentbox.policy:2: "),
        (b"read:\n", "agentbox.policy:1: "),
        (b"", "agentbox.policy: got no rule"),
        (b"\x7fELF\x00\xff\xfe", "agentbox.policy:1: "),
    ],
)
def test_a_wrong_policy(tmp_path: Path, policy: bytes, start: str) -> None:
    """A policy that does not parse runs nothing; file and line are named; status 65."""
    (tmp_path / "agentbox.policy").write_bytes(policy)
    done = agentbox(tmp_path, "run", "--", sys.executable, "-c", "print('ran')")
    assert one_line(done).startswith(start)
    assert done.returncode == 65
    assert not (tmp_path / "trace.jsonl").exists()


def test_a_command_that_is_not_there(folder: Path) -> None:
    """As in a shell, a command that is not found is status 127."""
    done = agentbox(folder, "run", "--", "no-such-command")
    assert "no-such-command" in one_line(done)
    assert done.returncode == 127


def test_a_command_that_cannot_be_executed(folder: Path) -> None:
    """As in a shell, a file that is not executable is status 126."""
    (folder / "plain.txt").write_text("text")
    done = agentbox(folder, "run", "--", "./plain.txt")
    assert "plain.txt" in one_line(done)
    assert done.returncode == 126


@pytest.mark.parametrize("words", [("show",), ("verify",)])
@pytest.mark.parametrize("name", ["missing.jsonl", ".", "/dev/null", "fifo"])
def test_a_trace_that_cannot_be_read(folder: Path, words: Sequence[str], name: str) -> None:
    """A missing file, a folder, a device or a pipe is named as what it is; status 66, at once."""
    os.mkfifo(folder / "fifo")
    done = agentbox(folder, *words, name)
    assert one_line(done).startswith(f"{name}: ")
    assert done.returncode == 66


@pytest.mark.parametrize("garbage", [os.urandom(4096), b"\n\n\n", b"{}\n", b'{"prev":"', b"\x1b[2Jhello\n"])
def test_garbage_as_a_trace(folder: Path, garbage: bytes) -> None:
    """Bytes that are no trace are refused by show and verify, without a traceback and without driving the terminal."""
    (folder / "trace.jsonl").write_bytes(garbage)
    shown = agentbox(folder, "show")
    assert one_line(shown).startswith("trace.jsonl: ")
    assert shown.returncode == 66
    verified = agentbox(folder, "verify")
    assert verified.returncode == 1
    assert (verified.stdout + verified.stderr).replace("\n", "").isprintable()
    assert "Traceback" not in verified.stderr


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    """A trace that cannot be made is said before the agent starts; status 73."""
    done = agentbox(folder, "run", "-t", "no/such/folder/trace.jsonl", "--", sys.executable, "-c", "print('ran')")
    assert "no/such/folder/trace.jsonl" in one_line(done)
    assert done.returncode == 73


def test_a_file_that_is_no_trace_is_not_replaced(folder: Path) -> None:
    """`-t` with the name of some other file does not destroy it; status 73."""
    (folder / "notes.txt").write_text("dear diary")
    done = agentbox(folder, "run", "-t", "notes.txt", "--", sys.executable, "-c", "print('ran')")
    assert "notes.txt" in one_line(done)
    assert done.returncode == 73
    assert (folder / "notes.txt").read_text() == "dear diary"


def mounted(folder: Path, options: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a file system of its own (tmpfs(5) with `options`) at folder/disk, which holds a policy."""
    disk = folder / "disk"
    disk.mkdir()
    script = (
        'mount -t tmpfs -o size=64k tmpfs "$0" && cp agentbox.policy "$0" && mount -o "$1" "$0" && cd "$0" && shift'
        ' && exec "$@"'
    )
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no user and mount namespace, so no small disk")
    command = [*namespace, "sh", "-c", script, str(disk), f"remount,{options}", *COMMAND, *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE
    )


def test_a_folder_that_is_read_only(folder: Path) -> None:
    """Where the trace cannot be made nothing runs; status 73."""
    done = mounted(folder, "ro", "run", "--", sys.executable, "-c", "print('ran')")
    expected = "/trace.jsonl: the trace cannot be made: read-only file system (name another trace: -t FILE)"
    assert one_line(done).endswith(expected)
    assert done.returncode == 73


def test_a_folder_to_make_where_all_is_read_only(folder: Path) -> None:
    """The reason is the disk, not a permission that somebody could give; status 73."""
    (folder / "agentbox.policy").write_text("write: ./out/\n")
    done = mounted(folder, "ro", "run", "-t", str(folder / "trace.jsonl"), "--", sys.executable, "-c", "print('ran')")
    assert "disk is on a read-only file system (make it yourself" in one_line(done)
    assert done.returncode == 73


def test_a_disk_that_becomes_full(folder: Path) -> None:
    """When the trace can no longer be written the agent is ended, and that is said; status 74."""
    (folder / "agentbox.policy").write_text(f"read: {folder}/data\n")
    (folder / "data").mkdir()
    (folder / "data" / "notes.txt").write_text("notes")
    program = f"while True: open({str(folder / 'data' / 'notes.txt')!r}).read()"
    done = mounted(folder, "size=64k", "run", "--", sys.executable, "-c", program)
    assert done.returncode == 74, done.stderr
    assert "trace.jsonl" in done.stderr
    assert "no space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty, expected at least a run.start"),
        (b"hello\n", "line 1 begins with 'hello\\n', expected "),
        (b'{"some":"json"}\n', "line 1 begins with "),
    ],
)
def test_a_replay_of_something_else(folder: Path, content: bytes, text: str) -> None:
    """A replay of what is no trace runs nothing, and says place, got, expected and the way out; status 4."""
    (folder / "trace.jsonl").write_bytes(content)
    done = agentbox(folder, "replay", "--", sys.executable, "-c", "print('ran')")
    assert one_line(done).startswith(f"the trace does not verify: trace.jsonl: {text}")
    assert one_line(done).endswith(" (nothing was run; name a file that agentbox run has written with -t)")
    assert done.returncode == 4


def test_a_replay_without_a_trace(folder: Path) -> None:
    """Without a recording nothing runs, and how to make one is said; status 66."""
    done = agentbox(folder, "replay", "--", sys.executable, "-c", "print('ran')")
    assert one_line(done) == (
        "trace.jsonl: cannot be opened: no such file or directory "
        "(record one first, or name the file that it was recorded to)"
    )
    assert done.returncode == 66


def test_a_replay_of_an_unsealed_trace(folder: Path) -> None:
    """A trace without its last line is replayed only when that is asked for."""
    program = [sys.executable, "-c", "print('ran')"]
    assert agentbox(folder, "run", "--", *program).returncode == 0
    trace = (folder / "trace.jsonl").read_bytes()
    (folder / "trace.jsonl").write_bytes(trace[: trace.rindex(b"{")])
    done = agentbox(folder, "replay", "--", *program)
    assert "unsealed" in one_line(done)
    assert "--allow-unsealed" in done.stderr
    assert done.returncode == 4
    assert agentbox(folder, "replay", "--allow-unsealed", "--", *program).returncode == 0


def test_a_replay_under_another_policy(folder: Path) -> None:
    """Another policy than the recorded one is warned of, and the replay goes on."""
    program = [sys.executable, "-c", "print('ran')"]
    assert agentbox(folder, "run", "--", *program).returncode == 0
    (folder / "agentbox.policy").write_text(POLICY + "read: ./more\n")
    done = agentbox(folder, "replay", "--", *program)
    assert done.returncode == 0
    assert done.stderr.startswith("agentbox: warning: ")
    assert "policy" in done.stderr.splitlines()[0]


def test_a_replay_without_a_policy_file_uses_the_recorded_one(folder: Path) -> None:
    """A trace can be replayed where its policy is not, and that is said."""
    program = [sys.executable, "-c", "print('ran')"]
    assert agentbox(folder, "run", "--", *program).returncode == 0
    (folder / "agentbox.policy").unlink()
    done = agentbox(folder, "replay", "--", *program)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "agentbox: no policy file is given, so the policy that the trace holds is used",
        "agentbox: replay ok — 0/0 recorded steps matched",
    ]


def test_init_overwrites_nothing(folder: Path) -> None:
    """An existing policy is left as it is; status 73."""
    done = agentbox(folder, "init")
    assert (
        one_line(done)
        == "agentbox.policy is there already and was left as it is (name another file: agentbox init FILE)"
    )
    assert done.returncode == 73
    assert (folder / "agentbox.policy").read_text() == POLICY


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no/such/x.policy", "cannot create no/such/x.policy: no such file or directory"),
        (".", ". is a directory"),
        ("link", "link is there already and was left as it is"),
    ],
)
def test_init_where_it_cannot_write(folder: Path, name: str, text: str) -> None:
    """init says what is in the way; a dangling link is not followed."""
    (folder / "link").symlink_to(folder / "elsewhere")
    done = agentbox(folder, "init", name)
    assert one_line(done).startswith(text)
    assert done.returncode == 73
    assert not (folder / "elsewhere").exists()


def test_init_gives_a_policy_that_runs(tmp_path: Path) -> None:
    """The starter policy parses, and a program that needs nothing runs under it."""
    assert agentbox(tmp_path, "init").returncode == 0
    done = agentbox(tmp_path, "run", "--", sys.executable, "-c", "print('ran')")
    assert (done.stdout, done.returncode) == ("ran\n", 0)


def test_a_closed_pipe_is_silent(folder: Path) -> None:
    """`agentbox show | head` ends without a word, with the status that a shell gives for SIGPIPE."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as closed:
        done = agentbox(folder, "--help", stdout=closed)
    assert (done.stderr, done.returncode) == ("", 141)


def test_a_full_disk_behind_standard_output(folder: Path) -> None:
    """Output that cannot be written is an error, not silence."""
    with open("/dev/full", "wb") as full:
        done = agentbox(folder, "--help", stdout=full)
    assert one_line(done) == "cannot write to standard output: no space left on device"
    assert done.returncode == 74
    assert [who for status, who, _ in exitcodes.TABLE if status == 74] == ["all"]


def test_standard_output_closed_by_the_caller(folder: Path) -> None:
    """A process without standard output is told so."""
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "--help"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert done.stderr == "agentbox: cannot write to standard output: it is closed\n"
    assert done.returncode == 74


def test_a_terminal_that_knows_only_latin_1(folder: Path) -> None:
    """Text that the locale's encoding lacks is shown as an escape instead of failing."""
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [*COMMAND, "dash—dash"], cwd=folder, env=environment, stderr=subprocess.PIPE, timeout=PATIENCE
    )
    assert done.stderr.startswith(b"agentbox: unknown command 'dash\\u2014dash'")


def test_a_name_that_is_not_utf_8(folder: Path) -> None:
    """A name of arbitrary bytes is shown, escaped, and does not fail."""
    done = subprocess.run(
        [*(word.encode() for word in COMMAND), b"show", b"\xff\xfe.jsonl"],
        cwd=folder,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )
    assert done.stderr.startswith(b"agentbox: \\udcff\\udcfe.jsonl: ") or done.stderr.startswith(
        b"agentbox: \\xff\\xfe.jsonl: "
    )
    assert done.returncode == 66
