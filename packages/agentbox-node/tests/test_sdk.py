"""The SDK of JavaScript says and records the same as Python's."""
# ruff: noqa: E501
# Programs in JavaScript keep their lines.

from __future__ import annotations

import http.server
import json
import sys
import threading

import pytest

PYTHON = """
import agentbox.client as box
text = box.read_text("data/ok.txt")
box.write_text("out/w", "z")
answer = box.get("http://127.0.0.1:{port}/x")
done = box.run(["echo", "hi"])
box.now(); box.random()
for call in (lambda: box.read_text({secret!r}), lambda: box.get("http://127.0.0.2:1/")):
    try:
        call()
    except PermissionError:
        pass
open("data/ok.txt").read()
open("out/direct", "w").close()
try:
    open({secret!r})
except PermissionError:
    pass
print(text.strip(), answer.status, answer.text, done.status, done.stdout.strip())
"""

NODE = """
const fs = require('fs');
(async () => {{
  const box = agentbox;
  const text = box.readText("data/ok.txt");
  box.writeText("out/w", "z");
  const answer = await box.get("http://127.0.0.1:{port}/x");
  const done = box.run(["echo", "hi"]);
  box.now(); box.random();
  try {{ box.readText({secret!r}) }} catch (e) {{ if (e.code !== 'EACCES') throw e }}
  await box.get("http://127.0.0.2:1/").catch((e) => {{ if (e.code !== 'EACCES') throw e }});
  fs.readFileSync("data/ok.txt");
  fs.closeSync(fs.openSync("out/direct", "w"));
  try {{ fs.readFileSync({secret!r}) }} catch (e) {{ if (e.code !== 'EACCES') throw e }}
  console.log(text.trim(), answer.status, answer.body, done.code, done.stdout.trim());
}})();
"""


class Pong(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"pong")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def port():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pong)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def comparable(scene):
    """Kind, op and args of every step, without what differs from run to run."""
    found = []
    for entry in scene.entries():
        if entry["kind"] in ("effect", "observe", "deny"):
            args = {k: v for k, v in entry["args"].items() if k not in ("headers", "env_ok")}
            found.append((entry["kind"], entry["op"], json.dumps(args, sort_keys=True)))
    return found


def test_the_same_agent_in_two_languages(scene, port):
    """One policy: the same decisions, the same ops and args in the trace, in the same order."""
    scene.rules += [f"net: 127.0.0.1:{port}", "exec: echo"]
    secret = str(scene.outside / "secret.txt")
    (scene.ws / "agent.py").write_text(PYTHON.format(port=port, secret=secret))
    scene.write(NODE.format(port=port, secret=secret))
    one = scene.agentbox("run", "--layers", "guard", "--", sys.executable, "agent.py")
    first = comparable(scene)
    for name in ("w", "direct"):
        (scene.ws / "out" / name).unlink()
    two = scene.run("agent.cjs")
    assert (one.returncode, two.returncode) == (0, 0), (one.stderr, two.stderr)
    assert one.stdout == two.stdout == "allowed 200 pong 0 hi\n"
    assert comparable(scene) == first
    assert len(first) == 11


def test_values_have_the_promised_shapes(scene):
    """now is integer milliseconds, random an integer below 2^48; promise forms give the same."""
    done = scene.box(
        "(async () => { const t = agentbox.now(), r = agentbox.random();\n"
        "console.log(Number.isInteger(t), Math.abs(t - Date.now()) < 5000, Number.isInteger(r) && r >= 0 && r < 2 ** 48,\n"
        "  await agentbox.promises.readText('data/ok.txt') === agentbox.readText('data/ok.txt'),\n"
        "  Buffer.isBuffer(agentbox.readBytes('data/ok.txt')), Object.isFrozen(agentbox)) })()"
    )
    assert done.stdout.split() == ["true"] * 6, done.stderr


def test_errors_say_what_is_wrong(scene):
    """A missing file, a wrong argument and a denial each have their own code."""
    done = scene.box(
        "const codes = []; for (const f of [() => agentbox.readText('data/none'), () => agentbox.readText({}), () => agentbox.run('ls'),\n"
        "  () => agentbox.writeText('data/x', 'y')]) try { f() } catch (e) { codes.push(e.code) }\n"
        "console.log(codes.join(' '))"
    )
    assert done.stdout.split() == ["ENOENT", "ERR_INVALID_ARG_VALUE", "ERR_INVALID_ARG_VALUE", "EACCES"], done.stderr


def test_promises_run_beside_the_event_loop(scene):
    """Many promised calls at once are all answered, and timers go on."""
    done = scene.box(
        "let ticks = 0; const timer = setInterval(() => { ticks += 1 }, 1);\n"
        "const readText = () => agentbox.promises.readText('data/ok.txt')\n"
        "Promise.all(Array.from({ length: 50 }, readText)).then(async (all) => {\n"
        "  for (let more = 0; ticks < 3 && more < 2000; more++) await readText()\n"
        "  clearInterval(timer); console.log(all.length, new Set(all).size, ticks >= 3) })"
    )
    assert done.stdout.split() == ["50", "1", "true"], done.stderr
    assert len(scene.steps("effect")) >= 50
    assert scene.agentbox("verify").returncode == 0


def test_a_replay_serves_and_verifies(scene, port):
    """The recorded answers come back with the server gone; a changed input file ends the run."""
    scene.rules += [f"net: 127.0.0.1:{port}", "exec: echo"]
    scene.write(NODE.format(port=port, secret=str(scene.outside / "secret.txt")) + "\nconsole.log(agentbox.now());\n")
    recorded = scene.run("agent.cjs")
    assert recorded.returncode == 0, recorded.stderr
    again = scene.agentbox("replay", "--layers", "guard", "--", scene.node, "agent.cjs")
    assert (again.returncode, again.stdout) == (0, recorded.stdout), again.stderr
    (scene.ws / "data" / "ok.txt").write_text("changed\n")
    diverged = scene.agentbox("replay", "--layers", "guard", "--", scene.node, "agent.cjs")
    assert diverged.returncode == 3
    assert "agent.cjs:" in diverged.stderr


@pytest.mark.parametrize(
    ("read", "status"),
    [
        ("Promise.all(names.map((name) => fs.promises.readFile(name)))", 0),
        ("names.forEach((name) => fs.readFile(name, () => {}))", 0),
        ("names.forEach((name) => fs.createReadStream(name).resume())", 0),
        ("names.forEach((name) => fs.readFileSync(name))", 3),
    ],
)
def test_a_replay_holds_to_one_order_only_what_waits_for_its_answer(scene, read, status):
    """What Node does beside others comes in any order, as its pool of threads and then the program's own steps do."""
    (scene.ws / "data" / "second.txt").write_text("second\n")
    order = "const names = ['ok', 'second'].map((name) => `data/${name}.txt`); if (process.argv[2] === 'back') names.reverse();"
    assert scene.box(f"const fs = require('fs'); {order} {read};").returncode == 0
    assert [op for op, _ in scene.steps("observe")] == ["fs.read", "fs.read"]
    again = scene.agentbox("replay", "--layers", "guard", "--", scene.node, str(scene.ws / "agent.cjs"), "back")
    assert again.returncode == status, again.stderr


def test_what_a_guard_does_to_see_whether_it_is_live_is_no_step(scene):
    """Also where a rule opens the place at which it looks: nothing that is another in each run is recorded."""
    scene.rules = ["read: /"]
    assert scene.box("require('fs').readFileSync('data/ok.txt')").returncode == 0
    assert [args["path"] for _, args in scene.steps("observe")] == [str(scene.ws / "data" / "ok.txt")]
    again = scene.agentbox("replay", "--layers", "guard", "--", scene.node, str(scene.ws / "agent.cjs"))
    assert again.returncode == 0, again.stderr
