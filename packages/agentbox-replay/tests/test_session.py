"""The session: serving, verifying and naming divergences, over hand-made traces and without an agent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentbox.guard.effects import EFFECTS
from agentbox.guard.session import Denial, Ended, EndRun, Event
from agentbox.replay.errors import TraceInvalid, TraceMissing
from agentbox.replay.outcome import TextOutcome
from agentbox.replay.recording import Recording
from agentbox.replay.session import ReplaySession

URL = "http://127.0.0.1:8080/"
Tapes = Callable[..., Any]


OPEN: list[Recording] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the recordings that a test opened."""
    yield
    while OPEN:
        OPEN.pop().close()


class Call(Event):
    """An event of an SDK call, with what only its performer gets."""

    __slots__ = ("private",)


class Live:
    """A replay without an agent: the test makes the calls."""

    def __init__(self, path: Any, scratch: Any = None, may_change: Any = None, **options: Any) -> None:
        self.lines: list[str] = []
        self.recording = Recording.open(str(path), **options)
        OPEN.append(self.recording)
        said = TextOutcome(self.lines.append)
        self.session = ReplaySession(self.recording, said, scratch=scratch, may_change=may_change)

    def effect(self, op: str, args: dict[str, Any], *, lane: str = "0.0", site: str = "") -> Any:
        """An SDK call; returns what is served."""
        event = Call(op, recorded(args), lane=lane, site=site)
        event.private = {name: value for name, value in args.items() if name.startswith("_")}
        return self.session.begin(event, EFFECTS.get(op))  # type: ignore[arg-type]

    def observe(self, op: str, args: dict[str, Any], *, lane: str = "0.0", site: str = "", src: str = "guard") -> None:
        """A direct action."""
        event = Event(op, args, lane=lane, site=site, src=src)
        self.session.consult(event)
        self.session.observe(event)

    def end(self, status: int = 0, **how: Any) -> int:
        """The agent ended; the status of the whole."""
        return self.session.finish(Ended(status, **how))

    @property
    def report(self) -> list[str]:
        """What was said, without the warnings before it."""
        return [line for line in self.lines if not line.startswith("warning:")]

    def ends(self, call: Callable[[], object]) -> list[str]:
        """`call` must end the run as a divergence; its report."""
        with pytest.raises(EndRun) as caught:
            call()
        assert caught.value.status == 3
        return self.report


def get(path: str, body: bytes | None = None) -> dict[str, Any]:
    """Normalised args of an `http.request`."""
    args: dict[str, Any] = {"method": "GET", "url": URL + path, "headers": {}, "_timeout": 30.0}
    return args if body is None else {**args, "method": "POST", "body": body}


def recorded(args: dict[str, Any]) -> dict[str, Any]:
    """The same without what is not recorded."""
    return {name: value for name, value in args.items() if not name.startswith("_")}


def read(path: str, content: bytes) -> dict[str, Any]:
    """The args of an observed read."""
    return {"path": path, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def test_serves_recorded_results_with_bodies(tape: Tapes) -> None:
    """Effects return their recorded results: values, inline bodies, stored bodies and bytes."""
    big = b"x" * 10_000
    path = (
        tape()
        .effect("clock.now", {}, {"value": 17.25})
        .effect("http.request", recorded(get("a")), {"status": 200, "body": b"\xff\x00"})
        .effect("http.request", recorded(get("b", big)), {"status": 201, "body": big})
        .seal()
    )
    live = Live(path)
    assert live.effect("clock.now", {}) == {"value": 17.25}
    assert live.effect("http.request", get("a")) == {"status": 200, "body": b"\xff\x00"}
    assert live.effect("http.request", get("b", big)) == {"status": 201, "body": big}
    assert live.end() == 0
    assert live.lines == ["replay ok — 3/3 recorded steps matched"]


def test_serves_recorded_errors(tape: Tapes) -> None:
    """An effect that failed when recorded fails the same way."""
    error = {"error": {"type": "os", "text": "No such file or directory", "errno": 2}}
    live = Live(tape().effect("fs.read", {"path": "/work/x"}, error).seal())
    assert live.effect("fs.read", {"path": "/work/x", "_path": "/work/x"}) == error
    assert live.end() == 0


def test_the_agents_own_status_is_kept(tape: Tapes) -> None:
    """A run that failed when recorded and fails the same way is a good replay, with the agent's status."""
    live = Live(tape().seal(status=7))
    assert live.end(7) == 7
    assert live.lines == ["replay ok — 0/0 recorded steps matched"]


def test_another_status_diverges(tape: Tapes) -> None:
    """When every step matches and the status does not, that is the divergence."""
    live = Live(tape().effect("clock.now", {}, {"value": 1.0}).seal(status=0))
    live.effect("clock.now", {})
    assert live.end(1) == 3
    assert live.report == [
        "replay diverged after step 1 of 1",
        "  recorded: nothing more",
        "  now:      nothing more",
        "  cause:    every step is the same, but the exit status was 0 when recorded and is 1 now",
        "  fix:      look at how the agent computes its status, or record again",
    ]


def test_changed_url(tape: Tapes) -> None:
    """A call that was never recorded names the step, both sides, the nearest one with a diff, and the place."""
    live = Live(
        tape()
        .effect("clock.now", {}, {"value": 1.0})
        .effect("http.request", recorded(get("a")), {"status": 200, "body": b""})
        .seal()
    )
    live.effect("clock.now", {})
    assert live.ends(lambda: live.effect("http.request", get("b"), site="/work/agent.py:12")) == [
        "replay diverged at step 2 of 2",
        "  recorded: http.request GET http://127.0.0.1:8080/a (SDK)",
        "  now:      http.request GET http://127.0.0.1:8080/b (SDK)",
        "  cause:    nothing like it was recorded",
        "  nearest:  step 2: http.request GET http://127.0.0.1:8080/a (SDK)",
        '              "method": "GET",',
        '            - "url": "http://127.0.0.1:8080/a"',
        '            + "url": "http://127.0.0.1:8080/b"',
        "             }",
        "  at:       /work/agent.py:12",
        "  fix:      if the agent was changed on purpose, record it again with: agentbox run -- COMMAND",
    ]


def test_changed_body_is_diffed_as_json(tape: Tapes) -> None:
    """Another body for the same URL is named as such and shown as a small diff."""
    live = Live(
        tape()
        .effect("http.request", recorded(get("v1", b'{"model":"m","seed":1,"z":[]}')), {"status": 200, "body": b""})
        .seal()
    )
    report = live.ends(lambda: live.effect("http.request", get("v1", b'{"model":"m","seed":2,"z":[]}')))
    assert "  cause:    the call differs from the recorded one" in report
    assert '            -  "seed": 1,' in [line.replace("-   ", "-  ") for line in report]
    assert not any("model" in line for line in report if line.strip().startswith(("-", "+")))


def test_one_call_too_many(tape: Tapes) -> None:
    """Identical calls are counted: the third of two says so."""
    path = tape().effect("clock.now", {}, {"value": 1.0}).effect("clock.now", {}, {"value": 2.0}).seal()
    live = Live(path)
    assert [live.effect("clock.now", {})["value"] for _ in range(2)] == [1.0, 2.0]
    report = live.ends(lambda: live.effect("clock.now", {}))
    assert report[0] == "replay diverged after step 2 of 2"
    assert "  cause:    it was recorded 2 times, and this is call 3 of it" in report


def test_changed_order(tape: Tapes) -> None:
    """The main thread's calls must come in the recorded order."""
    live = Live(
        tape()
        .effect("fs.read", {"path": "/work/a"}, {"body": b"a"})
        .effect("fs.read", {"path": "/work/b"}, {"body": b"b"})
        .seal()
    )
    report = live.ends(lambda: live.effect("fs.read", {"path": "/work/b"}))
    assert report[0] == "replay diverged at step 1 of 2"
    assert "  cause:    it was recorded as step 2, after fs.read /work/a (SDK)" in report


def test_stopped_early(tape: Tapes) -> None:
    """Recorded steps that never happen are a divergence at the first of them."""
    live = Live(tape().effect("clock.now", {}, {"value": 1.0}).effect("random.float", {}, {"value": 0.5}).seal())
    live.effect("clock.now", {})
    assert live.end() == 3
    assert live.report[0] == "replay diverged at step 2 of 2"
    assert "  cause:    the agent stopped early at step 2 of 2, with 1 not done" in live.report


def test_read_is_verified_by_hash(tape: Tapes) -> None:
    """A direct read of the same bytes is fine; of other bytes it names both hashes."""
    path = tape().observe("fs.read", read("/work/in", b"old")).observe("fs.read", read("/work/in", b"old")).seal()
    live = Live(path)
    live.observe("fs.read", read("/work/in", b"old"))
    report = live.ends(lambda: live.observe("fs.read", read("/work/in", b"new")))
    old, new = (hashlib.sha256(data).hexdigest() for data in (b"old", b"new"))
    assert f"  cause:    the file changed: recorded sha256 {old}, now sha256 {new}" in report
    assert "  fix:      put the recorded file back, or record again" in report


def test_file_that_was_absent(tape: Tapes) -> None:
    """A file that is there now and was not when recorded is a changed file."""
    live = Live(tape().observe("fs.read", {"path": "/work/in", "absent": True}).seal())
    report = live.ends(lambda: live.observe("fs.read", read("/work/in", b"")))
    assert any("the file changed: recorded absent, now sha256 e3b0" in line for line in report)


@pytest.mark.parametrize(
    ("op", "args", "help"),
    [
        ("net.connect", {"host": "example.org", "address": "192.0.2.1", "port": 443}, "box.get() and box.request()"),
        ("net.resolve", {"host": "example.org", "port": 443}, "box.get() and box.request()"),
        ("proc.exec", {"file": "/bin/echo", "argv": ["echo", "hi"], "cwd": "/work"}, "box.run()"),
    ],
)
def test_live_access_is_refused_even_if_recorded(tape: Tapes, op: str, args: dict[str, Any], help: str) -> None:
    """Replay never goes live: a direct connection, look-up or start ends it, and the SDK is named as the way out."""
    live = Live(tape().observe(op, args).seal())
    with pytest.raises(EndRun):
        live.session.consult(Event(op, args))
    assert any("replay never goes live" in line for line in live.report)
    assert any(line.startswith("  fix:") and help in line for line in live.report)


def test_recorded_live_access_is_announced(tape: Tapes) -> None:
    """A trace with direct network accesses says at the start that they will be refused."""
    live = Live(tape().observe("net.connect", {"host": "a", "port": 1}).seal())
    live.session.start({"argv": ["agent"], "cwd": "/work", "policy_sha256": "1"})
    assert live.lines == [
        "warning: the trace holds 1 direct network accesses, which replay refuses: it never goes live"
    ]


def test_other_command_folder_and_policy_are_warned_of(tape: Tapes) -> None:
    """What differs before the first step is said, and does not end the replay."""
    live = Live(tape().seal())
    live.session.start({"argv": ["other"], "cwd": "/else", "policy_sha256": "2"})
    assert len(live.lines) == 3
    assert live.lines[0] == "warning: another command: recorded ['agent'], now ['other']"
    assert live.end() == 0


def test_another_folder_stands_for_the_recorded_one(tape: Tapes) -> None:
    """Paths below the recorded working directory match paths below the present one, in every member that holds one;
    others do not.
    """
    data = {"sha256": hashlib.sha256(b"x").hexdigest(), "size": 1}
    run = {"argv": ["tool", "/work/in", "--out=/work/out", "work/in"], "cwd": "/work", "file": "/work/tool"}
    steps = (
        tape(argv=["/work/tool"])
        .observe("fs.read", read("/work/in", b"x"))
        .observe("fs.rename", {"path": "/work/a", "to": "/work/b"})
        .observe("fs.read", read("/workshop/in", b"x"))
        .effect("fs.write", {"path": "/work/sdk", **data}, {"size": 1})
        .effect("proc.run", run, {"status": 0, "stdout": b"", "stderr": b""})
        .observe("fs.list", {"path": "/work"})
        .meta("fs.state", path="/work/b", sha256="absent")
    )
    scratch = FakeScratch()
    scratch.answers = {"/else/b": "absent"}
    live = Live(steps.seal(), scratch, cwd="/else")
    live.session.start({"argv": ["/else/tool"], "cwd": "/else", "policy_sha256": "1"})
    assert live.lines == [
        "warning: another working directory: recorded /work, now /else; "
        "recorded paths below it are read as paths below the present one"
    ]
    live.observe("fs.read", read("/else/in", b"x"))
    live.observe("fs.rename", {"path": "/else/a", "to": "/else/b"})
    live.observe("fs.read", read("/workshop/in", b"x"))
    live.effect("fs.write", {"path": "/else/sdk", **data, "_path": "/else/sdk", "_data": b"x"})
    moved = {"argv": ["tool", "/else/in", "--out=/else/out", "work/in"], "cwd": "/else", "file": "/else/tool"}
    live.effect("proc.run", moved)
    live.observe("fs.list", {"path": "/else"})
    assert live.end() == 0
    assert scratch.written == [("/else/sdk", b"x")]


def test_a_difference_in_another_folder_names_the_folder(tape: Tapes) -> None:
    """A file that is another one in the present directory is a divergence, and the recorded directory the first fix."""
    live = Live(tape().observe("fs.read", read("/work/in", b"old")).seal(), cwd="/else")
    report = live.ends(lambda: live.observe("fs.read", read("/else/in", b"new")))
    assert report[1] == "  recorded: fs.read /else/in (direct)"
    assert report[-1] == (
        "  fix:      replay in the recorded working directory, /work; or put the recorded file back, or record again"
    )


def test_the_root_directory_is_nobodys_other_folder(tape: Tapes) -> None:
    """A trace recorded in / is read as it is: everything lies below that."""
    assert Live(tape(cwd="/").seal(), cwd="/else").recording.moved is None


def observing(tape: Tapes, folder: str = ".") -> Any:
    """A trace recorded under --observe: two calls that were let pass, and a step."""
    steps = tape(folder, mode="observe")
    for op, path in (("fs.read", "/etc/shadow"), ("fs.write", "/work/x")):
        steps.writer.append("deny", op, args={"path": path}, extra={"target": path, "reason": "-", "enforced": False})
    return steps.effect("clock.now", {}, {"value": 1.0}).seal()


def test_what_was_let_pass_under_observe_diverges_when_it_is_denied(tape: Tapes) -> None:
    """Such a trace is announced, and its first let-pass call that is denied now ends the replay with the real cause."""
    live = Live(observing(tape))
    live.session.start({"argv": ["agent"], "cwd": "/work", "policy_sha256": "1"})
    assert live.lines == [
        "warning: the trace was recorded under --observe, which let 2 calls pass that its policy denies; "
        "the first of them that is denied now ends the replay"
    ]
    event = Event("fs.read", {"path": "/etc/shadow"}, site="/work/agent.py:3")
    report = live.ends(lambda: live.session.deny(event, Denial("read", "/etc/shadow", "no `read:` rule covers it")))
    assert report == [
        "replay diverged at step 1 of 1",
        "  recorded: fs.read /etc/shadow (let pass)",
        "  now:      fs.read /etc/shadow (denied)",
        "  cause:    recorded under --observe, where nothing was denied; the policy denies it now: "
        "no `read:` rule covers it",
        "  at:       /work/agent.py:3",
        "  fix:      add the rule to the policy, then record again without --observe",
    ]


def test_what_was_let_pass_and_is_allowed_by_now_is_no_step(tape: Tapes) -> None:
    """With the missing rules added, a trace of --observe replays; what it never saw is a divergence all the same."""
    live = Live(observing(tape))
    live.observe("fs.read", read("/etc/shadow", b"x"))
    live.observe("fs.write", {"path": "/work/x", "flags": "w"})
    live.effect("clock.now", {})
    live.session.deny(Event("fs.read", {"path": "/other"}), Denial("read", "/other", "no rule"))
    assert live.end() == 0
    other = Live(observing(tape, "other"))
    other.ends(lambda: other.observe("fs.read", read("/other", b"x")))


def test_what_was_denied_and_is_allowed_now_is_named_as_such(tape: Tapes) -> None:
    """A call that is new because the policy lets it pass now says so."""
    steps = tape()
    extra = {"target": "/work/in", "reason": "no rule", "enforced": True}
    steps.writer.append("deny", "fs.read", args={"path": "/work/in"}, extra=extra)
    live = Live(steps.seal())
    report = live.ends(lambda: live.observe("fs.read", read("/work/in", b"x")))
    assert "  cause:    it was denied when the trace was recorded, and the policy allows it now" in report
    assert report[-1] == "  fix:      replay under the policy that the trace was recorded with, or record again"


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_file_that_the_run_removed_is_named_with_the_way_back(tape: Tapes, checkpoint: bool, tmp_path: Path) -> None:
    """An agent that ends early for want of a file that the recorded run removed is told how to put it back."""
    gone, kept = str(tmp_path / "gone"), str(tmp_path / "kept")
    (tmp_path / "kept").touch()
    steps = tape()
    if checkpoint:
        steps.effect("hook.checkpoint", {"tool": "snapback"}, {"id": "s12"})
    for path in (gone, kept):
        steps.observe("fs.remove", {"path": path})
    steps.observe("fs.write", {"path": gone + "2", "flags": "x", "absent": True})
    steps.observe("fs.remove", {"path": gone + "2"})
    live = Live(steps.effect("clock.now", {}, {"value": 1.0}).seal())
    assert live.end() == 3
    way = "`snapback undo s12` puts it back as it was" if checkpoint else "put it back as it was"
    assert f"            the recorded run itself removed {gone}: {way} before that run" in live.report


def test_a_file_that_the_run_changed_is_named_with_its_snapshot(tape: Tapes) -> None:
    """A read file that the recorded run itself changed later is put back by the run's own checkpoint."""
    live = Live(
        tape()
        .observe("fs.read", read("/work/in", b"old"))
        .effect("hook.checkpoint", {"tool": "snapback"}, {"id": "s12"})
        .observe("fs.write", {"path": "/work/in", "flags": "w", "size": 3})
        .seal()
    )
    report = live.ends(lambda: live.observe("fs.read", read("/work/in", b"new")))
    line = "the recorded run itself changed it later: `snapback undo s12` puts it back as it was before that run"
    assert "            " + line in report


def test_what_only_the_kernel_saw_may_happen(tape: Tapes) -> None:
    """A file access that the kernel's layers alone recorded is no step; a guard may tell of it in the replay, and the
    file must be the same one.
    """
    steps = tape()
    for content in (b"one", b"two"):
        steps.writer.append("observe", "fs.read", args=read("/work/big", content), src="kernel")
    path = steps.effect("clock.now", {}, {"value": 1.0}).seal()
    for told in ((), (b"one",), (b"two", b"one", b"two")):
        live = Live(path)
        for content in told:
            live.observe("fs.read", read("/work/big", content))
        live.effect("clock.now", {})
        assert live.end() == 0
        assert live.lines == ["replay ok — 1/1 recorded steps matched"]
    live = Live(path)
    report = live.ends(lambda: live.observe("fs.read", read("/work/big", b"three")))
    assert any(line.startswith("  cause:    the file changed: recorded sha256") for line in report)


def test_what_only_the_kernel_sees_takes_no_step_of_the_agent(tape: Tapes) -> None:
    """A library's act of the same kind, earlier, is none of the agent's: SQLite lists a folder to sync it."""
    folder = {"path": "/work/out"}
    steps = tape(layers=["guard", "seccomp"])
    steps.writer.append("observe", "fs.list", args=folder, src="kernel")
    path = steps.observe("fs.write", {"path": "/work/out/a"}).observe("fs.list", folder).seal()
    live = Live(path)
    live.observe("fs.list", folder, src="kernel")
    live.observe("fs.write", {"path": "/work/out/a"})
    live.observe("fs.list", folder)
    assert live.end() == 0


@pytest.mark.parametrize("layers", [["guard"], ["guard", "netns", "seccomp"]])
def test_what_nobody_would_have_told_of_is_no_step(tape: Tapes, layers: list[str]) -> None:
    """A trace of the guard alone holds nothing of what native code did, such as SQLite's journal."""
    live = Live(tape(layers=layers).seal())
    journal = {"path": "/work/d.db-journal", "flags": "0o102"}
    if "seccomp" in layers:
        live.ends(lambda: live.observe("fs.write", journal, src="kernel"))
    else:
        live.observe("fs.write", journal, src="kernel")
        assert live.end() == 0


@pytest.mark.parametrize("asked", [False, True], ids=["by default", "asked for"])
def test_native_files_are_compared_under_layers_that_were_asked_for(tape: Tapes, asked: bool) -> None:
    """By default they count as under the guard alone, which sees none, but for a changed file of others' making."""
    steps = tape(layers=["guard", "netns", "seccomp"])
    for name in ("in", "out/x"):
        steps.writer.append("observe", "fs.read", args=read(f"/work/{name}", b"old"), src="kernel")
    path = steps.seal()

    def live(header: dict[str, Any]) -> Live:
        made = Live(path, may_change=None if asked else lambda path: path.startswith("/work/out/"))
        made.session.start({"argv": ["agent"], "layers": ["guard", "netns", "seccomp"], **header})
        return made

    write = {"path": "/work/out/4711.part", "flags": "0o102"}
    for op, args in (("fs.write", write), ("fs.read", read("/work/out/x", b"new"))):
        one = live({})
        if asked:
            one.ends(lambda one=one, op=op, args=args: one.observe(op, args, src="kernel"))
        else:
            one.observe(op, args, src="kernel")
            assert one.end() == 0
        one = live({"runtime": "native"})
        one.ends(lambda one=one, op=op, args=args: one.observe(op, args, src="kernel"))
        one = live({})
        one.ends(lambda one=one, op=op, args=args: one.observe(op, args))
    one = live({})
    report = one.ends(lambda: one.observe("fs.read", read("/work/in", b"new"), src="kernel"))
    assert any(line.startswith("  cause:    the file changed") for line in report)


def test_a_signal_is_no_step(tape: Tapes) -> None:
    """Whether a worker has to be ended when its pool closes is decided by the scheduler, in either run."""
    signal = {"target": 7, "signal": 15}
    live = Live(tape().observe("proc.signal", signal).seal())
    assert live.end() == 0
    live = Live(tape("other").observe("fs.mkdir", {"path": "/work/out"}).seal())
    live.observe("proc.signal", signal)
    live.observe("fs.mkdir", {"path": "/work/out"})
    assert live.end() == 0
    assert live.report == ["replay ok — 1/1 recorded steps matched"]


def test_a_socket_gets_an_address_in_an_empty_network_only(tape: Tapes) -> None:
    """It is no step; where the replay has the machine's own network, it ends before others could reach the agent."""
    args = {"host": "127.0.0.1", "address": "127.0.0.1", "port": 80}
    path = tape().observe("net.bind", args).effect("clock.now", {}, {"value": 1.0}).seal()
    live = Live(path)
    live.session.start({"argv": ["agent"], "layers": ["guard", "netns"]})
    live.observe("net.bind", {**args, "port": 81})
    live.effect("clock.now", {})
    assert live.end() == 0
    live = Live(path)
    report = live.ends(lambda: live.observe("net.bind", args))
    assert "  cause:    replay never goes live, and this is a direct network access" in report


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("net.connect", {"host": "192.0.2.1", "address": "192.0.2.1", "port": 80}),
        ("net.send", {"host": "192.0.2.1", "address": "192.0.2.1", "port": 80}),
        ("net.resolve", {"host": "example.org"}),
    ],
)
def test_native_code_is_refused_a_live_network_and_goes_on(tape: Tapes, op: str, args: dict[str, Any]) -> None:
    """As it is in an empty network without layers; it is said once. Code that a guard sees ends the run by it."""
    path = tape(layers=["guard", "netns", "seccomp"]).seal()
    live = Live(path)
    live.session.start({"argv": ["agent"], "layers": ["guard", "netns", "seccomp"]})
    for _ in range(2):
        assert live.session.consult(Event(op, args, src="kernel")) == {"allow": False}
    live.session.observe(Event(op, args, src="kernel"))  # as a name that was refused is told of: it leads nowhere
    assert live.end() == 0
    assert sum("native code is refused" in line for line in live.lines) == 1
    live = Live(path)
    live.session.start({"argv": ["agent"], "layers": ["guard", "netns", "seccomp"]})
    live.ends(lambda: live.observe(op, args))


@pytest.mark.parametrize(
    ("header", "op", "args"),
    [
        ({"layers": ["guard", "seccomp"]}, "net.connect", {"address": "192.0.2.1", "port": 80}),
        ({"layers": ["netns", "seccomp"], "runtime": "native"}, "net.connect", {"address": "192.0.2.1", "port": 80}),
        ({"layers": ["guard", "netns", "seccomp"]}, "net.connect", {"path": "/run/db.sock"}),
        ({"layers": ["guard", "netns", "seccomp"]}, "proc.exec", {"argv": ["/bin/true"], "file": "/bin/true"}),
    ],
    ids=["no namespace", "no guard", "a path", "a program"],
)
def test_what_native_code_could_go_live_by_ends_the_run(
    tape: Tapes, header: dict[str, Any], op: str, args: dict[str, Any]
) -> None:
    """A network that is not the run's own, a socket with a path, and a program."""
    live = Live(tape(layers=["guard", "netns", "seccomp"]).seal())
    live.session.start({"argv": ["agent"], **header})
    live.ends(lambda: live.session.observe(Event(op, args, src="kernel")))
    live = Live(tape("other", layers=["guard", "netns", "seccomp"]).seal())
    live.session.start({"argv": ["agent"], **header})
    live.ends(lambda: live.session.consult(Event(op, args, src="kernel")))


@pytest.mark.parametrize("layers", [["guard"], ["guard", "netns", "seccomp"]])
def test_native_code_that_the_layers_held_is_told(tape: Tapes, layers: list[str]) -> None:
    """A module that is refused for want of the recorded run's layers is named with the option that brings them."""
    live = Live(tape(layers=layers).seal())
    denial = Denial("code", "module ctypes", "it calls native code")
    for _ in range(2):  # as numpy and pandas try it in turn
        live.session.deny(Event("code.load", {"name": "ctypes"}), denial)
    line = (
        "warning: module ctypes is refused here, and was not when the trace was recorded, under the kernel's layers: "
        "replay with --layers kernel"
    )
    assert live.lines.count(line) == ("seccomp" in layers)


def test_private_folders_are_no_steps(tape: Tapes) -> None:
    """What the agent does in its own TMPDIR and HOME is neither expected nor asked for."""
    live = Live(tape().observe("fs.write", {"path": "$TMPDIR/a1", "flags": "w"}).seal())
    live.observe("fs.write", {"path": "$TMPDIR/b2", "flags": "w"})
    live.observe("net.bind", {"path": "$TMPDIR/sock"})
    assert live.end() == 0
    assert live.lines == ["replay ok — 0/0 recorded steps matched"]


def test_random_names_in_private_folders_do_not_count(tape: Tapes) -> None:
    """A file that is made under a random name in TMPDIR and moved out is the same step."""
    live = Live(tape().observe("fs.rename", {"path": "$TMPDIR/a1", "to": "/work/out"}).seal())
    live.observe("fs.rename", {"path": "$TMPDIR/b2", "to": "/work/out"})
    assert live.end() == 0


def test_checkpoints_meta_and_denials_are_no_steps(tape: Tapes) -> None:
    """A recorded checkpoint, intents and denials need not happen again; a live checkpoint is not taken."""
    live = Live(
        tape()
        .effect("hook.checkpoint", {"tool": "snapback"}, {"id": "s1"})
        .meta("effect.begin", op="fs.write")
        .deny("fs.read", {"path": "/etc/passwd"})
        .seal()
    )
    assert len(live.recording) == 0
    assert live.effect("hook.checkpoint", {"tool": "snapback"}) is not None
    live.session.deny(Event("fs.read", {"path": "/etc/passwd"}), Denial("read", "/etc/passwd", "no rule"))
    assert live.end() == 0
    assert live.lines == ["replay ok — 0/0 recorded steps matched"]


def test_another_number_of_denials_is_said(tape: Tapes) -> None:
    """Denials never end a replay by themselves, but another number of them is said."""
    live = Live(tape().seal())
    live.session.deny(Event("fs.read", {"path": "/x"}), Denial("read", "/x", "no rule"))
    assert live.end() == 0
    assert live.lines[0] == "warning: 1 denials, recorded were 0"


def test_a_step_that_is_denied_now_is_named_as_such(tape: Tapes) -> None:
    """A recorded read that the policy denies now shows up as the cause at the next step or at the end."""
    steps = tape().observe("fs.read", read("/work/in", b"x")).effect("clock.now", {}, {"value": 1.0})
    live = Live(steps.seal())
    live.session.deny(Event("fs.read", {"path": "/work/in"}), Denial("read", "/work/in", "no `read:` rule covers it"))
    report = live.ends(lambda: live.effect("clock.now", {}))
    assert report[0] == "replay diverged at step 1 of 2"
    assert "  cause:    the policy denies the recorded step now: no `read:` rule covers it" in report


@pytest.mark.parametrize("known", [False, True], ids=["new", "as recorded"])
@pytest.mark.parametrize("ended", [False, True], ids=["goes on", "ends"])
def test_a_call_that_is_new_and_denied_is_named_where_the_agent_goes_another_way(
    tape: Tapes, known: bool, ended: bool
) -> None:
    """Denials are no steps: without that, only what follows it would be seen."""
    steps = tape().observe("fs.read", read("/work/a", b"x")).effect("clock.now", {}, {"value": 1.0})
    if known:
        steps.deny("fs.read", {"path": "/work/b"})
    live = Live(steps.seal())
    event = Event("fs.read", {"path": "/work/b"}, site="agent.py:3")
    live.session.deny(event, Denial("read", "/work/b", "no read rule covers it"))
    if ended:
        assert live.end(1) == 3
    else:
        live.ends(lambda: live.effect("clock.now", {}, site="agent.py:4"))
    report = "\n".join(live.report)
    assert "  recorded: fs.read /work/a (direct)" in report
    if known:
        assert "/work/b" not in report
    elif ended:
        assert "  now:      fs.read /work/b (denied)" in report and "  at:       agent.py:3" in report
    else:
        assert "  now:      clock.now (SDK)" in report
        assert "; before it came fs.read /work/b (denied), which was not recorded" in report


def test_interrupted(tape: Tapes) -> None:
    """Ctrl-C is an interruption and no divergence."""
    live = Live(tape().effect("clock.now", {}, {"value": 1.0}).seal())
    assert live.end(130, signal=2) == 130
    assert live.lines == ["replay interrupted after 0 of 1 recorded steps"]


def test_files_of_the_trace_are_matched_by_content(tape: Tapes) -> None:
    """A skipped SDK write is checked by path and content hash."""
    data = {"sha256": hashlib.sha256(b"x").hexdigest(), "size": 1}
    live = Live(tape().effect("fs.write", {"path": "/work/o", **data}, {"size": 1}).seal())
    other = {"sha256": hashlib.sha256(b"y").hexdigest(), "size": 1}
    report = live.ends(lambda: live.effect("fs.write", {"path": "/work/o", **other, "_path": "/work/o", "_data": b"y"}))
    assert "  cause:    the call differs from the recorded one" in report


class FakeScratch:
    """Remembers writes and answers with given states."""

    def __init__(self, **states: str) -> None:
        self.has_copy = True
        self.network = ""
        self.written: list[tuple[str, bytes]] = []
        self.answers = {f"/work/{name}": state for name, state in states.items()}

    def write(self, path: str, data: bytes) -> None:
        self.written.append((path, data))

    def states(self, paths: Any) -> dict[str, str]:
        return {path: self.answers[path] for path in paths}


def test_writes_go_into_the_scratch_copy_unless_they_failed(tape: Tapes) -> None:
    """What the SDK wrote is put into the copy; what failed to be written is not."""
    one = {"path": "/work/o", "sha256": hashlib.sha256(b"x").hexdigest(), "size": 1}
    failed = {"error": {"type": "os", "text": "No space left on device", "errno": 28}}
    scratch = FakeScratch()
    live = Live(tape().effect("fs.write", one, {"size": 1}).effect("fs.write", one, failed).seal(), scratch)
    for _ in range(2):
        live.effect("fs.write", {**one, "_path": "/work/o", "_data": b"x"})
    assert scratch.written == [("/work/o", b"x")]


def test_final_content_of_direct_writes_is_compared(tape: Tapes) -> None:
    """Directly written files must end with the recorded content, or be absent as they were."""
    recorded_sha = hashlib.sha256(b"x").hexdigest()
    steps = (
        tape()
        .observe("fs.write", {"path": "/work/out", "flags": "w"})
        .observe("fs.write", {"path": "/work/gone", "flags": "w"})
        .observe("fs.remove", {"path": "/work/gone"})
        .meta("fs.state", path="/work/gone", sha256="absent")
        .meta("fs.state", path="/work/out", sha256=recorded_sha)
    )
    path = steps.seal()

    def run(**states: str) -> tuple[int, list[str]]:
        live = Live(path, FakeScratch(**states))
        live.observe("fs.write", {"path": "/work/out", "flags": "w"})
        live.observe("fs.write", {"path": "/work/gone", "flags": "w"})
        live.observe("fs.remove", {"path": "/work/gone"})
        return live.end(), live.report

    assert run(out=recorded_sha, gone="absent")[0] == 0
    other = hashlib.sha256(b"y").hexdigest()
    status, report = run(out=other, gone="absent")
    assert status == 3
    assert report[0] == "replay diverged at step 1 of 3"
    expected = f"the content differs at the end: /work/out: recorded sha256 {recorded_sha}, now sha256 {other}"
    assert f"  cause:    {expected}" in report


@pytest.mark.parametrize(
    ("recorded", "status"), [("not hashed (no time was left)", 0), ("too large (4398046511104 bytes)", 3)]
)
def test_a_final_content_that_was_not_hashed_is_not_compared(tape: Tapes, recorded: str, status: int) -> None:
    """Where the recording had no time for it; a size that stands in its place is compared."""
    write = {"path": "/work/out", "flags": "w"}
    path = tape().observe("fs.write", write).meta("fs.state", path="/work/out", sha256=recorded).seal()
    live = Live(path, FakeScratch(out=hashlib.sha256(b"y").hexdigest()))
    live.observe("fs.write", write)
    assert live.end() == status


def test_trace_with_a_missing_blob_is_invalid(tape: Tapes) -> None:
    """A body that is gone is found before the agent starts."""
    path = tape().effect("fs.read", {"path": "/work/a"}, {"body": b"x" * 5000}).seal()
    for blob in (path.parent / "blobs").iterdir():
        blob.unlink()
    with pytest.raises(TraceInvalid, match="the trace does not verify: .* is missing"):
        Recording.open(str(path))


def test_body_that_vanishes_during_the_replay(tape: Tapes) -> None:
    """A body that is damaged while the agent runs ends the run as an invalid trace."""
    path = tape().effect("fs.read", {"path": "/work/a"}, {"body": b"x" * 5000}).seal()
    live = Live(path)
    for blob in (path.parent / "blobs").iterdir():
        blob.write_bytes(b"y" * 5000)
    with pytest.raises(EndRun) as caught:
        live.effect("fs.read", {"path": "/work/a"})
    assert caught.value.status == 4


def test_missing_trace(tmp_path: Any) -> None:
    """No trace file is one clear line with the way out."""
    with pytest.raises(TraceMissing) as caught:
        Recording.open(str(tmp_path / "none.jsonl"))
    assert "none.jsonl" in str(caught.value)
    assert caught.value.hint.startswith("record one first")
    assert caught.value.status == 66


@pytest.mark.parametrize("damage", ["edit", "cut", "garbage", "empty"])
def test_damaged_trace(tape: Tapes, damage: str) -> None:
    """A trace that does not verify is refused with what verify says."""
    path = tape().effect("clock.now", {}, {"value": 1.0}).seal()
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    damaged = {
        "edit": data.replace(b'"value":1.0', b'"value":2.0'),
        "cut": b"".join(lines[:-1]),
        "garbage": bytes(range(256)) * 10,
        "empty": b"",
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(TraceInvalid, match="the trace does not verify") as caught:
        Recording.open(str(path))
    assert caught.value.status == 4
    assert "\n" not in str(caught.value)


def test_unsealed_trace_can_be_allowed(tape: Tapes) -> None:
    """A crash leaves a trace without its last line, or with half a line: what holds can be replayed."""
    path = tape().effect("clock.now", {}, {"value": 1.0}).effect("random.float", {}, {"value": 0.5}).seal()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    live = Live(path, allow_unsealed=True)
    live.effect("clock.now", {})
    live.effect("random.float", {})
    assert live.end(5) == 5
    path.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    assert len(Live(path, allow_unsealed=True).recording) == 1


def test_chained_nonsense_is_invalid(tape: Tapes) -> None:
    """A trace whose chain holds but whose members are unusable is refused with the line."""
    path = tape().effect("http.request", {"nothing": 1}, {}).seal()
    with pytest.raises(TraceInvalid, match="line 2: http.request holds unusable members"):
        Recording.open(str(path))


@pytest.mark.parametrize("result", ["text", [1], 5])
def test_a_result_that_no_call_can_have_is_refused(tape: Tapes, result: object) -> None:
    """The format allows any value there; the line is named before anything is run."""
    made = tape()
    made.writer.append("effect", "clock.now", args={}, result=result)
    with pytest.raises(TraceInvalid, match="line 2: clock.now holds unusable members .*: result: got"):
        Recording.open(str(made.seal()))


def test_secrets_match_in_their_redacted_form(tmp_path: Any) -> None:
    """Headers, queries and bodies that the trace holds redacted match live ones with the secret, and others do not."""
    from agentbox.trace import Redactor, TraceWriter

    def call(token: str, query: str, note: str) -> dict[str, Any]:
        body = f'{{"api_key":"{token}","note":"{note}"}}'.encode()
        return {"method": "POST", "url": f"{URL}?token={token}&q={query}", "headers": {}, "body": body}

    writer = TraceWriter.create(tmp_path / "trace.jsonl", redactor=Redactor())
    writer.append("meta", "run.start", args={})
    args = call("s3cret-value", "1", "n")
    result = {"status": 200, "body": writer.body(b"fine")}
    for _ in range(2):
        writer.append("effect", "http.request", args={**args, "body": writer.body(args["body"])}, result=result)
    writer.seal(0, duration=0.1)
    writer.close()
    assert b"s3cret-value" not in (tmp_path / "trace.jsonl").read_bytes()

    live = Live(tmp_path / "trace.jsonl")
    assert live.effect("http.request", call("s3cret-value", "1", "n")) == {"status": 200, "body": b"fine"}
    report = live.ends(lambda: live.effect("http.request", call("s3cret-value", "1", "other")))
    assert "  cause:    nothing like it was recorded" in report or "  cause:    the call differs" in "\n".join(report)
    assert not any("s3cret-value" in line for line in report)


def test_steps_of_served_programs_are_no_steps(tape: Tapes) -> None:
    """What a program of box.run did itself is part of that call; a fork of the agent is the agent."""
    argv = {"argv": ["python", "x.py"], "cwd": "/work", "file": "/usr/bin/python"}
    path = (
        tape()
        .meta("process.start", process=0, parent=None)
        .meta("process.start", process=1, parent=0)
        .observe("fs.list", {"path": "/work/forked"}, lane="1.0")
        .meta("effect.begin", op="proc.run", args=argv)
        .meta("process.start", process=2, parent=None)
        .observe("fs.list", {"path": "/work/child"}, lane="2.0")
        .meta("process.start", process=3, parent=2)
        .effect("clock.now", {}, {"value": 1.0}, lane="3.0")
        .effect("proc.run", argv, {"status": 0, "stdout": b"", "stderr": b""})
        .seal()
    )
    live = Live(path)
    live.observe("fs.list", {"path": "/work/forked"}, lane="1.0")
    live.effect("proc.run", argv)
    assert live.end() == 0
    assert live.lines == ["replay ok — 2/2 recorded steps matched"]


def test_a_refused_sdk_call_is_named_by_what_it_resolved_to(tape: Tapes) -> None:
    """An SDK call that the policy denies now explains the recorded step, though its args are not resolved."""
    live = Live(tape().effect("fs.read", {"path": "/work/in"}, {"body": b"x"}).seal())
    live.session.deny(Event("fs.read", {"path": "in"}), Denial("read", "/work/in", "no rule covers it"))
    assert live.end() == 3
    assert "  cause:    the policy denies the recorded step now: no rule covers it" in live.report


@pytest.mark.parametrize("layers", [5, "netns", {"netns": 1}, None])
def test_members_of_another_type_are_no_defect_of_ours(tape: Tapes, layers: object) -> None:
    """A trace that is chained may say anything: layers that are no list are none, and what is no command is shown."""
    steps = tape(layers=layers).effect("x.do", {"argv": 5}, {}).seal()
    live = Live(steps)
    assert not live.recording.has_own_network() and not live.recording.has_kernel_view()
    assert live.end() == 3
    assert '  recorded: x.do {"argv": 5} (SDK)' in "\n".join(live.report).replace('{"argv":5}', '{"argv": 5}')
