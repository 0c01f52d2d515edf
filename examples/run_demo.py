"""The demo: record examples/demo_agent.py (with `node`: demo_agent.js), show, verify, replay without a server, tamper.

Never writes into the checkout: everything happens in a scratch folder, which is removed at the end.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
AGENTS = {"python": ["python", "demo_agent.py"], "node": ["node", "demo_agent.js"]}


class Weather(http.server.BaseHTTPRequestHandler):
    """The network of the demo: one page on the loopback interface."""

    def do_GET(self) -> None:
        body = b"sunny, 21 degrees\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def agentbox(folder: Path, environment: dict[str, str], *words: str) -> tuple[int, list[str]]:
    """Run one agentbox command in `folder` and show it; returns the exit status and its output."""
    print(f"\n$ agentbox {' '.join(words)}", flush=True)
    command = [sys.executable, "-m", "agentbox.cli", *words]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    return done.returncode, done.stdout.splitlines()


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)


def prepare(folder: Path, port: int) -> dict[str, str]:
    """Copy the example into `folder` with the server's port in its policy; returns the environment to run it in."""
    for _, agent in AGENTS.values():
        shutil.copy(EXAMPLES / agent, folder)
    shutil.copytree(EXAMPLES / "data", folder / "data")
    policy = (EXAMPLES / "agentbox.policy").read_text(encoding="utf-8")
    (folder / "agentbox.policy").write_text(policy.replace(":8765 ", f":{port} "), encoding="utf-8")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "DEMO_URL": f"http://127.0.0.1:{port}/weather"}


def tampered(folder: Path) -> str:
    """Copy the trace with one letter changed, as somebody hiding what the agent was told would; returns its name."""
    name = "tampered.jsonl"
    text = (folder / "trace.jsonl").read_bytes()
    (folder / name).write_bytes(text.replace(b"sunny", b"rainy", 1))
    return name


def demo(folder: Path, agent: list[str]) -> list[str]:
    """Do the whole job in `folder`; returns what went otherwise than it should."""
    wrong = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Weather)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    environment = prepare(folder, server.server_port)

    say("Record: the agent runs confined by agentbox.policy; reading /etc/passwd is refused.")
    status, recorded = agentbox(folder, environment, "run", "--", *agent)
    wrong += ["the recording failed"] if status else []
    server.shutdown()
    server.server_close()
    thread.join()

    say("Show: every step, in order.")
    status, _ = agentbox(folder, environment, "show")
    wrong += ["show failed"] if status else []

    say("Verify: the hash chain is whole and sealed.")
    status, _ = agentbox(folder, environment, "verify")
    wrong += ["the trace does not verify"] if status else []

    say("Replay: the server is stopped, the answers and the clock come from the trace.")
    status, replayed = agentbox(folder, environment, "replay", "--", *agent)
    wrong += ["the replay failed"] if status else []
    wrong += ["the replay printed something else"] if replayed != recorded else []

    say("Tamper: the same trace with the weather changed does not verify.")
    status, _ = agentbox(folder, environment, "verify", tampered(folder))
    wrong += ["the changed trace was not noticed"] if status != 1 else []
    return wrong


def main() -> int:
    agent = AGENTS.get(sys.argv[1] if len(sys.argv) > 1 else "python")
    if agent is None:
        say(f"No such demo: {sys.argv[1]}; there are {' and '.join(AGENTS)}.")
        return 2
    with tempfile.TemporaryDirectory(prefix="agentbox-demo-") as folder:
        wrong = demo(Path(folder), agent)
    if wrong:
        say("The demo did not go as it should: " + "; ".join(wrong) + ".")
        return 1
    say("Recorded, shown, verified, replayed word for word without the server, and a changed copy was caught.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
