"""The supervisor against agents that speak the channel by hand: order, gating, endings, hostile lines."""

import os
import pathlib
import resource
import signal
import subprocess

import pytest
from kit.waiting import wait_until

from agentbox.trace import verify

LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def alive(pid):
    try:
        return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def leftovers(sandbox):
    return [name for name in os.listdir(sandbox.folder.parent) if name.startswith("agentbox-")]


def test_a_run_records_what_is_announced_and_seals(sandbox):
    """Events become observations in order, the last line counts them, the trace verifies, nothing is left behind."""
    done = sandbox.fake(
        """
        link = Link().armed()
        link.event("fs.read", path="/x/a", sha256="0" * 64, size=1)
        link.deny("fs.read", "read", "/etc/passwd", path="/etc/passwd")
        """
    )
    assert done.status == 0
    assert [e["op"] for e in done.trace] == ["run.start", "proc.exec", "process.start", "fs.read", "fs.read", "run.end"]
    assert done.of("deny")[0]["key"] == "read" and done.of("deny")[0]["enforced"] is True
    assert done.last == "agentbox: recorded 0 effects, 1 observations, 1 denials -> trace.jsonl"
    assert done.said("denied read /etc/passwd: no read or write rule covers it; to allow it: read: /etc/passwd")
    assert verify(sandbox.folder / "trace.jsonl").ok
    assert leftovers(sandbox) == []


def test_the_header_names_command_policy_layers_and_seed(sandbox):
    """run.start holds what a replay and a reader need, and no values of variables."""
    sandbox.environ["SECRET_TOKEN"] = "hunter2hunter2"
    done = sandbox.fake("Link().armed()", policy="env: SECRET_TOKEN\n")
    args = done.trace[0]["args"]
    assert args["policy"] == "env: SECRET_TOKEN\n" and len(args["policy_sha256"]) == 64
    assert args["layers"] == ["guard"] and args["enforced_by"]["net"] == ["guard"]
    assert args["cwd"] == str(sandbox.folder) and "SECRET_TOKEN" in args["env"]
    assert "hunter2hunter2" not in (sandbox.folder / "trace.jsonl").read_text()


def test_the_exit_status_is_the_agents_own(sandbox):
    """A status passes through unchanged."""
    assert sandbox.fake("Link().armed(); sys.exit(7)").status == 7


def test_a_signal_that_ends_the_agent_gives_128_and_its_number(sandbox):
    """As a shell reports it."""
    done = sandbox.fake("Link().armed(); os.kill(os.getpid(), 15)")
    assert done.status == 128 + 15
    assert done.trace[-1]["args"]["signal"] == 15


def test_a_process_that_never_arms_is_a_failed_run(sandbox):
    """Its success is not believed: status 70 and a line that says why, in the trace too."""
    done = sandbox.fake("Link()")
    assert done.status == 70
    assert done.said("the guard was never live")
    assert "never live" in done.trace[-1]["args"]["failure"]


def test_a_process_that_never_connects_is_a_failed_run(sandbox):
    """Nothing but a hello and `armed` proves a guard."""
    assert sandbox.fake("pass").status == 70


@pytest.mark.parametrize(
    "line",
    [
        "b'garbage\\n'",
        "b'\\xff\\xfe\\n'",
        "b'[1]\\n'",
        'b\'{"t":"seal"}\\n\'',
        'b\'{"t":"event","op":"run.end","args":{},"thread":1}\\n\'',
        'b\'{"t":"event","op":"http.request","args":{},"thread":1}\\n\'',
        'b\'{"t":"event","op":"fs.read","args":7,"thread":1}\\n\'',
        'b\'{"t":"event","op":"fs.read","args":{},"thread":NaN}\\n\'',
        'b\'{"t":"ask","id":1,"op":"proc.exec","args":{"file":1},"thread":1}\\n\'',
        'b\'{"t":"event","op":"fs.read","args":{"path":"\' + b\'x\' * 40000 + b\'"},"thread":1}\\n\'',
        "b'{\"t\":' + b'[' * 100000 + b'\\n'",
    ],
)
def test_a_hostile_line_ends_its_process(sandbox, line):
    """Broken, unknown, forged and over-long lines end their sender with one clear line; the run goes on to its seal."""
    done = sandbox.fake(f"link = Link().armed(); link.raw({line}); rest()")
    assert done.status == 128 + 9
    assert done.said("was ended: channel: ") and "Traceback" not in done.err
    assert [entry["args"]["reason"][:9] for entry in done.trace if entry["op"] == "channel.broken"] == ["channel: "]
    assert done.trace[-1]["op"] == "run.end" and done.trace[-1]["args"]["signal"] == 9


def test_a_hostile_line_of_a_child_leaves_the_run_alone(sandbox):
    """The child alone is ended; what its parent does afterwards is recorded."""
    done = sandbox.fake(
        """
        link = Link().armed()
        if os.fork() == 0:
            child = Link(resume=True)
            child.raw(b'{"t":"event","op":"net.bind","args":{},"thread":1}\\n')
            rest()
        assert os.waitstatus_to_exitcode(os.wait()[1]) == -9
        link.ask("net.connect", path="/nowhere")
        print("went on")
        """
    )
    assert done.status == 0 and done.out == "went on\n", done.err
    assert done.said("net.bind") and done.trace[-1]["op"] == "run.end"


def test_a_line_before_hello_ends_its_process(sandbox):
    """Every connection begins with hello."""
    done = sandbox.fake("Link().armed(); Link(hello=False).event('fs.read', path='/x'); rest()")
    assert done.status == 128 + 9 and done.said("before hello")


def test_what_was_announced_before_a_question_is_recorded_before_it(sandbox):
    """Over two connections, again and again: the announcement that came first stands first in the trace."""
    done = sandbox.fake(
        """
        events, asks = Link().armed(), Link(resume=True)
        for number in range(50):
            events.event("fs.read", path=f"/x/{number}")
            asks.ask("net.connect", path="/nowhere/%d" % number)
        """
    )
    numbers = [int(e["args"]["path"].rpartition("/")[2]) for e in done.trace if e["kind"] in ("observe", "deny")]
    assert numbers == [n for n in range(50) for _ in range(2)]


def test_threads_and_processes_have_lanes(sandbox):
    """P counts processes in the order of their hello, T threads in the order in which they are heard of."""
    done = sandbox.fake(
        """
        import threading
        link = Link().armed()
        link.event("fs.read", path="/main")
        thread = threading.Thread(target=link.event, args=("fs.read",), kwargs={"path": "/thread"})
        thread.start(); thread.join()
        if os.fork() == 0:
            Link(resume=True).event("fs.read", path="/child")
            os._exit(0)
        os.wait()
        """
    )
    lanes = {e["args"]["path"]: e["lane"] for e in done.of("observe")}
    assert lanes == {"/main": "0.0", "/thread": "0.1", "/child": "1.0"}
    assert [e["args"]["parent"] for e in done.of(op="process.start")] == [None, 0]


@pytest.mark.attempt("P11")
def test_a_process_that_outlives_the_agent_is_ended(sandbox):
    """Even one that made itself an orphan in a session of its own."""
    done = sandbox.fake(
        """
        link = Link().armed()
        told, tell = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(tell, b"%d" % os.getpid())
                rest()
            os._exit(0)
        os.wait()
        print(os.read(told, 20).decode())
        """
    )
    assert done.said("ended 1 process that outlived the agent")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.out), 0)


def test_the_death_of_the_supervisor_ends_the_agent_and_leaves_a_sound_prefix(sandbox):
    """kill -9: what was acknowledged is in the file, unsealed, and the agent is gone."""
    process = sandbox.start(
        """
        link = Link().armed()
        for number in range(20):
            link.event("fs.read", path=f"/x/{number}")
            link.ask("net.connect", path="/nowhere")
        print(os.getpid(), flush=True)
        rest()
        """
    )
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    wait_until(lambda: not alive(pid), "the end of the agent")
    report = verify(sandbox.folder / "trace.jsonl", allow_unsealed=True)
    assert report.ok and report.entries >= 42


def test_a_killed_runs_folder_is_swept_by_the_next_run(sandbox):
    """The lock, not the age, says that its supervisor is dead."""
    process = sandbox.start("Link().armed(); print('up', flush=True); rest()")
    process.stdout.readline()
    process.kill()
    process.communicate()
    assert len(leftovers(sandbox)) == 1
    sandbox.fake("Link().armed()")
    assert leftovers(sandbox) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_agentbox_reaches_the_agent(sandbox, number):
    """The supervisor survives it, the agent decides, the run is sealed."""
    process = sandbox.start(
        f"""
        import signal
        signal.signal({int(number)}, lambda *_: sys.exit(9))
        Link().armed()
        print("up", flush=True)
        rest()
        """
    )
    process.stdout.readline()
    process.send_signal(number)
    done = sandbox.end(process)
    assert done.status == 9 and done.trace[-1]["op"] == "run.end"


def test_every_earlier_trace_is_kept(sandbox):
    """No run destroys another one's record, and a line says where the older ones are."""
    done = [sandbox.fake(f"Link().armed(); sys.exit({status})") for status in (3, 4, 5)]
    kept = sorted((sandbox.folder / "traces").glob("*.jsonl"))
    assert sorted(verify(path).status for path in kept) == ["sealed", "sealed"]
    assert {f'"status":{n}' in path.read_text() for n, path in zip((3, 4), kept, strict=True)} == {True}
    assert not done[0].said("kept in") and done[2].said("2 older traces are kept in traces/")


def test_a_trace_that_cannot_be_made_runs_nothing(sandbox):
    """The agent's code never starts; one line says where and why."""
    done = sandbox.fake("Link().armed(); print('ran')", trace="missing/trace.jsonl")
    assert done.status == 73 and done.out == "" and done.said("missing/trace.jsonl")
    (sandbox.folder / "trace.jsonl").symlink_to("/dev/full")
    done = sandbox.fake("Link().armed(); print('ran')")
    assert done.status == 73 and done.out == "" and done.said("symbolic link")


def test_a_full_disk_ends_the_run(sandbox):
    """Nothing goes on unrecorded: status 74, the agent killed, no traceback."""
    code = """
    link = Link().armed()
    for number in range(100000):
        link.event("fs.read", path="/x" * 1000)
        if number % 100 == 0:
            link.ask("net.connect", path="/nowhere")
    print("survived")
    """
    command = sandbox.wish("read: ./data\n", sandbox.script(code))

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))

    process = subprocess.Popen(
        command, cwd=sandbox.folder, env=sandbox.environ, stdout=-1, stderr=-1, text=True, preexec_fn=small_files
    )
    done = sandbox.end(process)
    assert done.status == 74 and done.out == "" and "Traceback" not in done.err
    assert done.said("does not wait for its record") and done.said("no seal")
    assert verify(sandbox.folder / "trace.jsonl", allow_unsealed=True).ok


@pytest.mark.attempt("P4", "P10")
def test_a_storm_of_connections_neither_kills_the_supervisor_nor_grows_it(sandbox):
    """2,000 questions on connections of their own are all answered and recorded."""
    done = sandbox.fake(
        """
        keep = Link().armed()
        for number in range(2000):
            assert Link(resume=True).ask("net.connect", path="/nowhere")["allow"] is False
        """
    )
    assert done.status == 0 and len(done.of("deny")) == 2000
    assert done.said("(2000 times)")


def test_out_of_descriptors_turns_newcomers_away(sandbox):
    """Processes that find no room end (their guard's way), and what cannot be decided then is refused and recorded;
    the run itself goes on and is sealed.
    """
    code = """
    import select, signal, socket
    keep = Link().armed()
    told, tell = os.pipe()
    def fill():
        held, closings = [], select.poll()
        for _ in range(40):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(os.environ["AGENTBOX_CHANNEL"])
            closings.register(held[-1], 0)
        while True:
            for number, _ in closings.poll():  # POLLHUP
                os.write(tell, b"x")
                closings.unregister(number)
    children = []
    for _ in range(4):
        children.append(os.fork())
        if not children[-1]:
            fill()
    closed = 0
    while closed < 60:
        closed += len(os.read(told, 60))
    print(closed >= 60)
    answer = keep.ask("net.connect", path="/nowhere")
    print(answer["errno"], "no descriptor" if "no descriptor" in answer["text"] else answer["text"])
    print(keep.call("clock.now")["error"]["errno"])
    for child in children:
        os.kill(child, signal.SIGKILL)
    while "descriptor" in (text := keep.ask("net.connect", path="/nowhere")["text"]):
        pass
    print(text)
    print("value" in keep.call("clock.now"))
    """
    command = sandbox.wish("read: ./data\n", sandbox.script(code))
    limited = [*command[:1], "-c", LIMITED, *command[1:]]
    process = subprocess.Popen(limited, cwd=sandbox.folder, env=sandbox.environ, stdout=-1, stderr=-1, text=True)
    done = sandbox.end(process)
    assert done.status == 0 and done.trace[-1]["op"] == "run.end", done.err
    full, short, number, later, served = done.out.splitlines()
    assert (full, short, number, served) == ("True", "24 no descriptor", "24", "True") and "no net rule" in later
    assert {"no descriptor" in entry["reason"] for entry in done.of("deny")} == {True, False}


def test_observe_mode_denies_nothing_and_says_so(sandbox):
    """Every denial is recorded with `enforced` false, the operation goes on, the user reads it twice."""
    done = sandbox.fake(
        """
        link = Link().armed()
        assert link.welcome["mode"] == "observe"
        assert link.ask("net.connect", family="inet", address="192.0.2.1", port=80)["allow"] is True
        link.deny("fs.read", "read", "/etc/passwd", path="/etc/passwd")
        """,
        mode="observe",
    )
    assert done.status == 0
    assert [e["enforced"] for e in done.of("deny")] == [False, False]
    assert (
        done.said("nothing is enforced")
        and done.said("nothing was enforced")
        and done.said("would deny net 192.0.2.1:80")
    )


def test_the_final_state_of_written_files_is_recorded(sandbox):
    """fs.state holds the sha256 of what is there at the end, or absent."""
    done = sandbox.fake(
        f"""
        link = Link().armed()
        for name in ("b", "c"):
            link.event("fs.write", path={str(sandbox.folder)!r} + "/" + name, flags="w")
        open("b", "w").write("beta")
        link.event("fs.write", path=link.welcome["writable"]["TMPDIR"] + "/x", flags="w")
        """,
        policy="write: .\n",
    )
    states = {e["args"]["path"].rpartition("/")[2]: e["args"]["sha256"] for e in done.of(op="fs.state")}
    assert states == {"b": "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753", "c": "absent"}
    assert done.of(op="fs.write")[-1]["args"]["path"] == "$TMPDIR/x"


def test_a_guard_that_does_not_come_up_in_time_is_ended(sandbox):
    """A process that connects and then hangs is not waited for without end."""
    done = sandbox.fake("Link(); rest()", hello_timeout=0.5)
    assert done.status == 70 and done.said("did not come up in the agent within 0.5 seconds")


def test_a_session_that_ends_the_run_is_obeyed(sandbox):
    """Its status stands, its report is said line by line, every process is ended."""
    done = sandbox.fake("Link().armed().event('fs.read', path='/x'); rest()", faulty="end")
    assert done.status == 3 and done.said("first line") and done.said("second line")
    assert done.trace[-1]["args"]["failure"] == "first line"


def test_a_session_may_answer_in_the_systems_place(sandbox):
    """What `consult` returns goes to the agent, and nothing is observed."""
    done = sandbox.fake(
        "print(Link().armed().ask('net.connect', family='inet', address='127.0.0.1', port=1)['text'])",
        policy="net: 127.0.0.1\n",
        faulty="end",
    )
    assert done.out == "served\n" and done.status == 0 and done.of("observe") == []


def test_a_defect_ends_the_run_in_one_line(sandbox):
    """No traceback, the place is named, the agent does not outlive it; AGENTBOX_DEBUG=1 shows more."""
    code = "Link().armed().event('fs.read', path='/x'); rest()"
    done = sandbox.fake(code, faulty="defect")
    assert done.status == 70 and done.said("RuntimeError: boom") and "Traceback" not in done.err
    sandbox.environ["AGENTBOX_DEBUG"] = "1"
    assert "Traceback" in sandbox.fake(code, faulty="defect").err


@pytest.mark.parametrize(("lack", "said"), [("memory", "out of memory"), ("threads", "no thread can be started")])
def test_what_the_machine_lacks_is_no_defect(sandbox, lack, said):
    """One line that says so, and one that says what can be done."""
    code = "Link().armed().event('fs.read', path='/x'); rest()"
    done = sandbox.fake(code, faulty=lack)
    assert done.status == 70 and done.said(f"{said}; the agent was ended") and done.said("hint: raise the limits")
    assert not done.said("defect") and done.trace[-1]["op"] == "run.end"


def test_an_effect_under_way_is_recorded_when_the_agent_ends(sandbox):
    """Its intent is there already; its result follows though nobody waits for it, and the program is ended."""
    done = sandbox.fake(
        """
        link = Link().armed()
        link.send({"t": "call", "id": 1, "op": "proc.run", "args": {"argv": ["sleep", "60"]}, "thread": 1})
        Link(resume=True).ask("net.connect", path="/nowhere")
        """,
        policy="exec: sleep\n",
    )
    assert done.status == 0
    assert done.of(op="effect.begin") and done.of("effect", "proc.run")[0]["result"]["status"] == 137


def test_programs_of_the_sdk_have_limits(sandbox):
    """Input goes in, both outputs come out, a timeout and too much output end the program and what it started."""
    done = sandbox.python(
        """
        import agentbox.client as box
        print(box.run(["sh", "-c", "cat; echo err >&2; exit 3"], input="in"))
        try: box.run(["sh", "-c", "sleep 60 & wait"], timeout=0.3)
        except OSError as error: print(error.errno)
        """,
        policy="exec: sh\n",
    )
    assert "status 3" in done.out and done.out.splitlines()[1] == "110", done.out + done.err
    assert not done.said("outlived")


def test_a_refused_call_leaves_no_body_in_the_trace(sandbox):
    """However large the text was that the agent wanted to write."""
    done = sandbox.fake(
        """
        answer = Link().armed().call("fs.write", path="/etc/x", data={"text": "x" * 2_000_000})
        print(answer["error"]["type"], answer["error"]["target"])
        """
    )
    assert done.out == "denied /etc/x\n" and done.of("deny")[0]["args"] == {"path": "/etc/x"}


def test_without_pidfds_the_end_of_the_agent_is_still_noticed(sandbox):
    """Before Linux 5.3, or where a container forbids them, SIGCHLD tells."""
    done = sandbox.fake("Link().armed().ask('net.connect', path='/nowhere'); sys.exit(6)", no_pidfd=True)
    assert done.status == 6 and done.trace[-1]["op"] == "run.end"


@pytest.mark.attempt("P10")
def test_a_bomb_of_processes_is_ended_with_the_agent(sandbox):
    """Children that fork and end all the time are all gone when the run is sealed."""
    done = sandbox.fake(
        """
        import select
        link = Link().armed()
        link.event("fs.read", path="/x")
        for _ in range(30):
            if os.fork() == 0:
                Link(resume=True).event("fs.read", path="/x")
                while True:
                    if os.fork() == 0:
                        select.select([], [], [], 0.05)
                    else:
                        os._exit(0)
        """
    )
    assert done.status == 0 and done.trace[-1]["op"] == "run.end"
    assert subprocess.run(["pgrep", "-f", str(sandbox.folder.parent / "agent.py")], capture_output=True).stdout == b""
