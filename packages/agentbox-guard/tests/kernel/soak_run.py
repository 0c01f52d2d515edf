"""A soak: the load of soak_agent.py in a run, and then everything that may not have happened to the record or the
supervisor.

The suite runs a short form of it; `python tests/bench/soak.py` the long one. It compares, and repairs nothing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from threading import Thread

from soak_agent import FILES, ROUNDS, SECRET_EVERY, WRITE_EVERY, sizes

from agentbox.trace import verify

AGENT = Path(__file__).with_name("soak_agent.py")
MOST_GROWTH = 8.0
"""MB by which the supervisor's memory may have grown between two rests; a leak of 50 bytes an act would be more."""
SETTLES = 60.0  # seconds in which what was closed is noticed


class Server:
    """Answers each line with `!`, and keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port: int = self._socket.getsockname()[1]
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.lines.append(connection.recv(100).decode().strip())
                connection.sendall(b"!")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class State:
    """What a process holds: descriptors, and resident memory in MB."""

    def __init__(self, pid: int) -> None:
        self.descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        status = Path(f"/proc/{pid}/status").read_text()
        self.memory = int(status.split("VmRSS:")[1].split()[0]) / 1024


class Soak:
    """One soak in an empty `folder`, of so many acts in all; `guarded`: the agent's processes have a guard."""

    def __init__(self, folder: Path, workers: int, opens: int, execs: int, connects: int, *, guarded: bool) -> None:
        self.folder = folder
        self.workers = workers
        self.each = [opens // workers, execs // workers, connects // workers]
        self.guarded = guarded
        self.states: list[State] = []
        self.seconds = 0.0
        self.found: list[str] = []
        """What is wrong."""
        self._server = Server()

    def run(self) -> list[str]:
        """Everything that is wrong, in words; nothing when all is well."""
        try:
            self._prepare()
            self._load()
        finally:
            self._server.close()
        self._check_supervisor()
        report = verify(str(self.folder / "state" / "trace.jsonl"))
        self._same("the chain", report.ok, True)
        with open(self.folder / "state" / "trace.jsonl") as file:
            self._check_trace([json.loads(line) for line in file])
        return self.found

    def _prepare(self) -> None:
        (self.folder / "secret").write_text("the secret\n")
        (self.folder / "state").mkdir()
        for number in range(self.workers):
            own = self.folder / "ws" / str(number)
            own.mkdir(parents=True)
            for name in range(FILES):
                (own / str(name)).write_text("content\n")
        text = f"read: .\nwrite: .\nread: {AGENT}\nexec: /bin/true\nnet: 127.0.0.1:{self._server.port}\n"
        (self.folder / "state" / "policy").write_text(text)

    def _load(self) -> None:
        state = self.folder / "state"
        options = ["-q", "-p", str(state / "policy"), "-t", str(state / "trace.jsonl")]
        agent = [sys.executable, *([] if self.guarded else ["-I", "-S"]), str(AGENT)]
        numbers = map(str, [self._server.port, self.workers, *self.each])
        start = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "agentbox.cli", "run", *options, "--", *agent, str(self.folder / "ws"), *numbers],
            cwd=self.folder / "ws",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as run:
            assert run.stdin is not None and run.stdout is not None and run.stderr is not None
            for number in range(ROUNDS):
                self._same(f"round {number}", run.stdout.readline(), b"0 failed\n")
                self.states.append(self._settled(run.pid))
                run.stdin.write(b"\n")
                run.stdin.flush()
            run.stdin.close()
            said = run.stderr.read().decode()
            lines = [line for line in said.splitlines() if not line.endswith("it runs without its guard")]
            self._same("what was said", lines, [])
            self._same("the status", run.wait(), 0)
        self.seconds = time.monotonic() - start

    def _settled(self, pid: int) -> State:
        """How the supervisor is at rest: not before it has noticed what was closed."""
        deadline = time.monotonic() + SETTLES
        state, before = State(pid), -1
        while time.monotonic() < deadline:
            if state.descriptors == before and not any(before > earlier.descriptors for earlier in self.states):
                break
            before = state.descriptors
            time.sleep(0.1)
            state = State(pid)
        return state

    def _check_supervisor(self) -> None:
        first, last = self.states
        if last.descriptors > first.descriptors:
            self.found.append(
                f"descriptors of the supervisor: {last.descriptors} at the end, {first.descriptors} before"
            )
        growth = last.memory - first.memory
        if growth > MOST_GROWTH:
            self.found.append(f"memory of the supervisor: grew by {growth:.1f} MB, expected {MOST_GROWTH} at most")

    def _check_trace(self, trace: list[dict]) -> None:
        def of(op: str, kind: str = "observe") -> list[dict]:
            return [entry for entry in trace if entry["op"] == op and entry["kind"] == kind]

        opened, written, secrets, started, connected = Counter(), Counter(), 0, Counter(), Counter()
        for round_ in range(ROUNDS):
            opens, execs, connects = sizes(round_, *self.each)
            for worker in range(self.workers):
                name, own = f"{round_}.{worker}", f"{self.folder}/ws/{worker}"
                opened.update(f"{own}/{number % FILES}" for number in range(opens))
                written[f"{own}/log"] += len(range(0, opens, WRITE_EVERY))
                secrets += len(range(0, opens, SECRET_EVERY))
                started.update(f"{name}.{number}" for number in range(execs))
                connected.update(f"{name}.{number}" for number in range(connects))
        ours = f"{self.folder}/"
        reads = Counter(entry["args"]["path"] for entry in of("fs.read") if entry["args"]["path"].startswith(ours))
        self._same("reads", reads, opened)
        self._same("writes", Counter(entry["args"]["path"] for entry in of("fs.write")), +written)
        self._same("execs", Counter(entry["args"]["argv"][-1] for entry in of("proc.exec")), started)
        self._same("connects", len(of("net.connect")), connected.total())
        self._same("connections that the server saw", Counter(self._server.lines), connected)
        closed = of("net.close")
        self._same("closed connections", len(closed), connected.total())
        self._same("bytes sent", sum(one["args"]["sent"] for one in closed), sum(len(name) + 1 for name in connected))
        denied = [entry for entry in trace if entry["kind"] == "deny"]
        self._same("denials", Counter(entry["target"] for entry in denied), Counter({f"{ours}secret": secrets}))
        logs = {path: os.path.getsize(path) for path in written if written[path]}
        self._same("bytes written", logs, dict(+written))

    def _same(self, what: str, got: object, expected: object) -> None:
        if got != expected:
            if isinstance(got, Counter) and isinstance(expected, Counter):
                lost, double = expected - got, got - expected
                detail = f"{lost.total()} lost ({str(dict(lost))[:200]}), {double.total()} too many"
                self.found.append(f"{what}: {detail} ({str(dict(double))[:200]})")
            else:
                self.found.append(f"{what}: got {str(got)[:2000]}, expected {str(expected)[:2000]}")


def main() -> int:
    """The long form; prints what it took and what is wrong."""
    wrong = 0
    for guarded, opens, execs, connects in ((False, 200_000, 5_000, 2_000), (True, 20_000, 1_000, 500)):
        with tempfile.TemporaryDirectory(prefix="agentbox-soak-") as folder:
            soak = Soak(Path(folder).resolve(), 50, opens, execs, connects, guarded=guarded)
            found = soak.run()
        what = "guarded" if guarded else "without a guard"
        print(f"{soak.workers} processes {what}: {opens:,} opens, {execs:,} execs, {connects:,} connects")
        memory = ", ".join(f"{state.memory:.1f}" for state in soak.states)
        descriptors = ", ".join(str(state.descriptors) for state in soak.states)
        print(f"  {soak.seconds:.1f} s; the supervisor's memory {memory} MB, descriptors {descriptors}")
        print(
            *(f"  WRONG: {line}" for line in found), *(() if found else ("  nothing lost, nothing double",)), sep="\n"
        )
        wrong += len(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
