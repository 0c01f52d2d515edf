"""`show` and `verify` on real traces: what people read, what programs read, and what hostile texts cannot do."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentbox.cli import exitcodes
from agentbox.cli.main import main
from agentbox.trace import TraceWriter

HOSTILE = "data/\x1b]0;owned\x07\u202e\r\nagentbox: verify ok"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(folder: Path, name: str = "trace.jsonl", *, seal: bool = True) -> Path:
    """A small trace: one entry of each kind, one with a hostile path."""
    writer = TraceWriter.create(folder / name)
    writer.append("meta", "run.start", args={"argv": ["python", "agent.py"], "cwd": str(folder)}, ts=1.0)
    writer.append("effect", "http.request", args={"method": "GET", "url": "http://x/"}, result={"status": 200}, ts=2.5)
    writer.append("observe", "fs.read", args={"path": f"{folder}/data/notes.txt", "size": 30}, ts=3.0)
    writer.append("observe", "fs.read", args={"path": HOSTILE, "size": 1}, ts=3.0)
    writer.append(
        "deny",
        "fs.read",
        args={"path": "/etc/passwd"},
        extra={"reason": "no read: rule covers it", "rule": None, "fix": "read: /etc/passwd", "enforced": True},
        ts=4.0,
    )
    if seal:
        writer.seal(status=0, duration=0.5)
    writer.close()
    return folder / name


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What went to standard output."""
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("kind", "op", "args", "row"),
    [
        ("observe", "fs.read", {"path": "data/none", "absent": True}, "data/none  = not there"),
        ("observe", "fs.read", {"path": "data/some", "sha256": "0" * 64, "size": 3}, "data/some  = 3 bytes"),
        ("observe", "fs.write", {"path": "a", "flags": "w", "absent": True}, "a  = new"),
        ("observe", "fs.write", {"path": "a", "flags": "w", "size": 7}, "a  = over 7 bytes"),
        ("observe", "net.close", {"host": "h", "sent": 7, "received": 0}, "h  = 7 bytes sent, 0 bytes received"),
        ("observe", "net.close", {"host": "h", "port": 80, "sent": None, "received": None}, "h:80  = bytes unknown"),
        ("deny", "code.load", {"name": "ctypes"}, "ctypes  denied: so"),
        ("observe", "code.load", {"path": "/lib/x.so"}, "/lib/x.so"),
        ("deny", "proc.signal", {"target": 1, "signal": 15}, "signal 15 to process 1  denied: so"),
        ("observe", "proc.signal", {"target": -7, "signal": 2}, "signal 2 to process group 7"),
        ("observe", "proc.signal", {"target": 0, "signal": 2}, "signal 2 to its process group"),
        ("meta", "fs.state", {"path": "out/x", "sha256": "ab" * 32}, "out/x  = sha256 abababababab…"),
        ("meta", "fs.state", {"path": "out/x", "sha256": "absent"}, "out/x  = absent"),
        ("meta", "fs.state", {"path": "out/x", "sha256": "unreadable (so)"}, "out/x  = unreadable (so)"),
        (
            "meta",
            "fs.state",
            {"path": "", "sha256": "", "cut": True, "most": 7},
            "more than 7 files were written, the others are not listed",
        ),
        ("effect", "hook.checkpoint", {"tool": "snapback"}, "snapback"),
        ("effect", "future.op", {"name": "x", "more": 1}, "name x, more 1"),
        ("meta", "effect.begin", {"op": "fs.move", "args": {"path": "a"}}, "fs.move a"),
        ("effect", "clock.now", {}, "clock.now"),
    ],
)
def test_a_row_is_words(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, op: str, args: dict[str, object], row: str
) -> None:
    """What an entry is about and how it ended is said in words, never as JSON."""
    writer = TraceWriter.create(folder / "trace.jsonl")
    writer.append("meta", "run.start", args={"argv": ["x"], "cwd": str(folder)})
    writer.append(kind, op, args=args, extra={"reason": "so", "enforced": True} if kind == "deny" else None)
    writer.close()
    assert main(["show", "--kind", kind]) == 0
    shown = lines(capsys)[-1]
    assert shown.endswith((f"  {row}", f"  {kind:<7}  {row}")), shown
    assert "{" not in shown


def test_an_entry_of_another_shape_is_shown_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace may hold an entry that agentbox would not write; its row is no reason to fail."""
    writer = TraceWriter.create(folder / "trace.jsonl")
    writer.append("meta", "run.start", args={"argv": ["x"], "cwd": str(folder)})
    writer.append("meta", "effect.begin", args={"op": "fs.move", "args": "a"})
    writer.close()
    assert main(["show"]) == 0
    assert lines(capsys)[1].endswith("{'op': 'fs.move', 'args': 'a'}")


@pytest.mark.parametrize(("number", "name"), [(15, " (SIGTERM)"), (50, " (signal 50)"), (0, "")])
def test_the_end_names_the_signal(folder: Path, capsys: pytest.CaptureFixture[str], number: int, name: str) -> None:
    """A status above 128 is a signal's only where one ended the agent."""
    writer = TraceWriter.create(folder / "trace.jsonl")
    writer.append("meta", "run.start", args={"argv": ["x"], "cwd": str(folder)})
    writer.seal(143, duration=1.0, signal=number)
    assert main(["show"]) == 0
    assert lines(capsys)[-1].endswith(f"  exit status 143{name}, 1.000 s")


@pytest.mark.parametrize(
    ("live", "platform", "row"),
    [
        (["guard"], "Linux 6.6 x86_64", "x y, layers: guard (without netns, landlock, seccomp)"),
        (["landlock", "seccomp"], "Linux 6.6 x86_64", "x y, layers: landlock, seccomp (without netns)"),
        (["guard", "netns", "landlock", "seccomp"], "Linux 6.6 x86_64", "x y"),
        (["outer run"], "Linux 6.6 x86_64", "x y"),
        (["guard"], "Darwin 24 arm64", "x y"),
        ("nonsense", "Linux 6.6 x86_64", "x y"),
    ],
)
def test_the_start_names_layers_that_were_not_live(
    folder: Path, capsys: pytest.CaptureFixture[str], live: object, platform: str, row: str
) -> None:
    """Where the platform has more than a run had, its first row says so."""
    writer = TraceWriter.create(folder / "trace.jsonl")
    args = {"argv": ["x", "y"], "cwd": str(folder), "layers": live, "platform": platform}
    writer.append("meta", "run.start", args=args)
    writer.close()
    assert main(["show"]) == 0
    assert lines(capsys)[0].endswith(f"  run.start        {row}")


def test_a_row_says_when_what_and_how_it_ended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row holds number, time, kind, operation, target and result; paths below the run's folder are relative."""
    record(folder)
    assert main(["show"]) == 0
    shown = lines(capsys)
    assert shown[1].split(None, 2)[0] == "1"
    assert shown[1].endswith("effect   http.request     GET http://x/  = 200")
    assert shown[2].endswith("observe  fs.read          data/notes.txt  = 30 bytes")


def test_a_denial_shows_the_line_that_would_allow_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below a denial stands the rule to add."""
    record(folder)
    assert main(["show", "--kind", "deny"]) == 0
    denial, fix = lines(capsys)
    assert denial.endswith("/etc/passwd  denied: no read: rule covers it")
    assert fix.strip() == "to allow it: read: /etc/passwd"


def test_hostile_texts_stay_on_their_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path with control characters is shown escaped; it can neither drive the terminal nor fake a line."""
    record(folder)
    main(["show"])
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert "data/\\x1b]0;owned\\x07\\u202e\\r\\nagentbox: verify ok" in out
    assert not any(line.startswith("agentbox:") for line in out.splitlines())


def test_a_trace_may_be_named_as_in_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-t` works for show and verify as it does for run and replay; naming two traces is an error."""
    record(folder, "other.jsonl")
    assert main(["verify", "-t", "other.jsonl"]) == 0
    assert main(["show", "-t", "other.jsonl"]) == 0
    capsys.readouterr()
    assert main(["show", "-t", "other.jsonl", "third.jsonl"]) == 64
    assert capsys.readouterr().err == (
        "agentbox: got two traces, 'third.jsonl' and 'other.jsonl', expected one (name it once)\n"
    )


def test_json_is_the_trace_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints the recorded lines byte for byte, filtered if asked."""
    trace = record(folder)
    main(["show", "--json"])
    assert capsys.readouterr().out == trace.read_text()
    main(["show", "--json", "--op", "fs.*", "--kind", "observe"])
    assert [json.loads(line)["seq"] for line in lines(capsys)] == [2, 3]


def test_nothing_to_show_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operation that the trace does not hold gives no rows, and a message instead of silence."""
    record(folder)
    assert main(["show", "--op", "proc.exec"]) == 0
    assert capsys.readouterr() == ("", "agentbox: trace.jsonl: no entry of that kind and operation\n")


def test_a_program_is_shown_as_the_file_that_it_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its name, argv[0], is its starter's to choose: where that is another, the file is named first."""
    writer = TraceWriter.create(folder / "trace.jsonl")
    writer.append("meta", "run.start", args={"argv": ["x"], "cwd": str(folder)})
    for argv in (["ls", "-u"], ["/usr/bin/id", "-u"], ["id"], []):
        writer.append("observe", "proc.exec", args={"file": "/usr/bin/id", "argv": argv, "cwd": str(folder)})
    writer.append("observe", "proc.exec", args={"file": "/usr/bin/python3.12", "argv": ["python", "x"], "cwd": "/"})
    writer.append("observe", "proc.exec", args={"file": f"{folder}/out/tool", "argv": ["ls"], "cwd": str(folder)})
    writer.close()
    main(["show", "--op", "proc.exec"])
    shown = [line.split("proc.exec", 1)[1].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "/usr/bin/id as ls -u", "/usr/bin/id -u", "id", "/usr/bin/id as nothing", "python x", "out/tool as ls",
    ]  # fmt: skip


def test_a_torn_trace_is_shown_as_far_as_it_goes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a crash the whole entries are shown, then the error."""
    trace = record(folder)
    os.truncate(trace, trace.stat().st_size - 10)
    assert main(["show"]) == 66
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 6
    assert captured.err.startswith("agentbox: trace.jsonl: line 6: is cut off")


def test_following_ends_with_the_seal(folder: Path) -> None:
    """`--follow` prints entries as they come and ends with the run."""
    writer = TraceWriter.create(folder / "trace.jsonl")
    writer.append("meta", "run.start", args={"argv": ["x"]})
    writer.flush()
    command = [sys.executable, "-m", "agentbox.cli", "show", "--follow"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert "run.start" in follower.stdout.readline()
        writer.append("observe", "fs.read", args={"path": "late"})
        writer.flush()
        assert "late" in follower.stdout.readline()
        writer.seal(status=3, duration=0.1)
        writer.close()
        rest = follower.stdout.read()
    assert "exit status 3" in rest
    assert follower.returncode == 0


def test_colours_only_on_a_terminal(folder: Path) -> None:
    """On a terminal rows are coloured; with NO_COLOR, or in a pipe, they are not."""
    record(folder)
    assert b"\x1b[31m" in on_terminal(folder, "show")
    assert b"\x1b" not in on_terminal(folder, "show", NO_COLOR="1")


def on_terminal(folder: Path, *words: str, **variables: str) -> bytes:
    """What the command writes to a terminal."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    controller, terminal = pty.openpty()
    with open(controller, "rb", buffering=0) as reader:
        command = [sys.executable, "-m", "agentbox.cli", *words]
        with open(terminal, "wb") as end:
            done = subprocess.Popen(
                command, cwd=folder, stdout=end, stderr=end, env={**environment, "TERM": "xterm", **variables}
            )
        output = b"".join(_until_closed(reader.fileno()))
        done.wait()
    return output


def _until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # EIO: the last process has closed the terminal (pty(7))
            return
        if not data:
            return
        yield data


def deny(writer: TraceWriter, key: str, target: str, fix: str | None) -> None:
    extra = {"reason": "so", "rule": None, "fix": fix, "enforced": True, "key": key, "target": target}
    writer.append("deny", f"op.{key}", args={}, extra=extra)


def test_the_rules_that_are_missing_are_told_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the kinds, without what another line covers; what is no line of a policy is none here either."""
    writer = TraceWriter.create(folder / "trace.jsonl")
    writer.append("meta", "run.start", args={"argv": ["x"], "cwd": "/w"})
    for _ in range(2):
        deny(writer, "exec", "/usr/bin/ls -l", "exec: ls")
        deny(writer, "read", "/w/data/a", "read: ./data/a")
    deny(writer, "read", "/w/data", "read: ./data")
    deny(writer, "read", "/w/database", "read: ./database")
    deny(writer, "write", "/w/out", "write: ./out")
    deny(writer, "read", "/w/out/x", "read: ./out/x")
    deny(writer, "write", "/w/out/sib", "write: ./out/sib")
    deny(writer, "read", "/proc/53/task", "read: /proc/*/task")
    deny(writer, "read", "/proc/53/task/53/stat", "read: /proc/*/task/*/stat")
    deny(writer, "write", "/w/made/in", "write: ./made/in.txt")
    deny(writer, "read", "/w/made/in", "read: ./made/in.txt")
    deny(writer, "net", "h:1", "net: h:1")
    for port in (80, 81):  # the run itself listened at the first
        deny(writer, "net", f"127.0.0.1:{port}", f"net: 127.0.0.1:{port}")
        deny(writer, "net", f"[::1]:{port}", f"net: [::1]:{port}")
        deny(writer, "net", f"10.0.0.1:{port}", f"net: 10.0.0.1:{port}")
    writer.append("observe", "net.bind", args={"host": "0.0.0.0", "address": "0.0.0.0", "port": 80})
    deny(writer, "write", "/w/agentbox.policy", None)
    deny(writer, "read", "/w/y", "read: /\nwrite: /")
    deny(writer, "read", "/w/z", "read: ./z\x1b[31m")
    deny(writer, "read", "/w/v", "allow: read ./v, write ./v")
    writer.seal(status=0, duration=0.1)
    writer.close()
    assert main(["show", "--rules"]) == 0
    assert lines(capsys) == [
        "read: ./data",
        "read: ./database",
        "read: /proc/*/task",
        "read: /proc/*/task/*/stat",
        "write: ./made/in.txt",
        "write: ./out",
        "net: 10.0.0.1:80",
        "net: 10.0.0.1:81",
        "net: 127.0.0.1:81",
        "net: [::1]:81",
        "net: h:1",
        "exec: ls",
        "# no rule allows: write /w/agentbox.policy: so",
        "# no rule allows: read /w/y: so",
        "# no rule allows: read /w/z: so",
        "# no rule allows: read /w/v: so",
    ]


def test_the_rules_alone_are_asked_for_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a trace without denials that a rule would lift says so."""
    record(folder)
    assert main(["show", "--rules", "--json"]) == exitcodes.USAGE
    assert "--rules and --json do not go together" in capsys.readouterr().err
    TraceWriter.create(folder / "other.jsonl").close()
    assert main(["show", "--rules", "other.jsonl"]) == 0
    assert "no rule is missing" in capsys.readouterr().err


def test_verify_says_what_it_proved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line holds entries, seal and head; the lines before say what was proved and what was not."""
    record(folder)
    assert main(["verify"]) == 0
    *sentences, last = lines(capsys)
    assert last.startswith("verify ok — 6 entries, sealed, head ")
    head = last.split()[-1]
    assert [sentence.partition(":")[0] for sentence in sentences] == ["proved", "proved", "not proved"]
    assert main(["verify", "--head", head]) == 0
    assert "not proved" not in capsys.readouterr().out


def test_verify_fails_for_an_edited_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One byte changed: status 1, and the line is named."""
    trace = record(folder)
    trace.write_bytes(trace.read_bytes().replace(b"notes.txt", b"notes.txd"))
    assert main(["verify"]) == 1
    assert "verify FAILED (edited) — trace.jsonl: line 3" in lines(capsys)[-1]


def test_verify_fails_for_an_unsealed_trace_unless_allowed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace without its last line is not passed over in silence."""
    record(folder, seal=False)
    assert main(["verify"]) == 1
    assert lines(capsys)[-1].startswith("verify FAILED (unsealed) — ")
    assert main(["verify", "--allow-unsealed"]) == 0
    assert lines(capsys)[-1].startswith("verify ok — 5 entries, unsealed, head ")


def test_verify_fails_for_another_head(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A head of another run is not this trace's; a head that is none is a usage error."""
    record(folder)
    assert main(["verify", "--head", "0" * 64]) == 1
    assert "head-mismatch" in lines(capsys)[-1]
    assert main(["verify", "--head", "abc"]) == 64
    assert (
        capsys.readouterr().err == "agentbox: head: is 'abc', expected 64 hex digits (the run prints it at its end)\n"
    )


def test_verify_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get the whole report."""
    record(folder)
    assert main(["verify", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["status"], report["entries"]) == (True, "sealed", 6)


def test_help_of_every_command_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Help lines are at most 120 characters wide, and every way to ask gives the same."""
    for name in ("init", "run", "show", "verify", "replay"):
        assert main([name, "--help"]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: agentbox {name}")
        assert max(map(len, text.splitlines())) <= 120
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == text


def test_a_defect_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nobody foresaw is reported with its place and without a traceback; status 70."""

    def broken(*words: object, **more: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("agentbox.trace.verify", broken)
    assert main(["verify"]) == 70
    error = capsys.readouterr().err
    assert error.startswith("agentbox: internal error at test_commands.py:")
    assert error.count("\n") == 1


def test_an_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends the command without a word."""

    def interrupted(*words: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentbox.trace.verify", interrupted)
    assert main(["verify"]) == 130
    assert capsys.readouterr() == ("", "")


def test_starting_a_run_loads_no_heavy_module() -> None:
    """Parsing the command line of `run` loads neither argparse nor anything else that costs milliseconds."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from agentbox.cli.main import _dispatch\n"
        "from agentbox.cli.commands import load\n"
        "from agentbox.cli.options import parse\n"
        "run = load('run'); parse('run', ['-p', 'x', '--', 'true'], run.options, run.words, takes_command=True)\n"
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('agentbox')))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["__future__"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
@pytest.mark.parametrize("user", [0, 1000])
def test_doctor_says_what_programs_notice(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    """That nobody may trace; and, where the user is no root, that others' files show another owner."""
    from agentbox.cli.commands import doctor

    monkeypatch.setattr("os.geteuid", lambda: user)
    text = doctor._text([])
    assert "what programs notice:" in text and "ptrace: strace, gdb" in text
    assert ("owner 65534" in text) == (user != 0)
