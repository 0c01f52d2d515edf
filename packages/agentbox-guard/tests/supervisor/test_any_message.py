"""Any message at all on the guard channel: the run goes on, and ends with its seal and the agent's own status."""

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentbox.guard.channel import ANNOUNCED
from agentbox.guard.decisions import DECIDERS
from agentbox.guard.effects import EFFECTS

SENDS = """
import select
main = Link().armed()
for line in json.load(open("lines.json")):
    child = os.fork()
    if child == 0:
        link = Link(role=line.pop("ROLE"), resume=True)
        link.send(line)
        # A question makes sure that the line was handled, or nothing comes because this process is ended.
        link.send({"t": "ask", "id": 9, "op": "net.connect", "args": {"path": "/nowhere"}, "thread": 1})
        while link.receive().get("id") != 9:
            pass
        os._exit(0)
    os.waitpid(child, 0)
main.ask("net.connect", path="/nowhere")
print("went on")
"""

NAMES = st.sampled_from(
    ["path", "to", "file", "argv", "cwd", "address", "port", "family", "host", "target", "signal", "sha256", "size"]
    + ["absent", "exists", "flags", "url", "method", "headers", "body", "input", "timeout", "env_ok", "name", "text"]
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["/etc/passwd", "HERE/x", "/", "", "127.0.0.1", "inet", "\0", "\ud800", "$TMPDIR/a", "/proc"])
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
ARGS = st.dictionaries(NAMES, VALUES, max_size=5)
KINDS = ["event", "deny", "ask", "call"]
OPS = st.sampled_from([*ANNOUNCED, *DECIDERS, *EFFECTS, "run.end", "no.such"])
LINES = st.fixed_dictionaries(
    {"ROLE": st.sampled_from(["guard", "sdk"]), "t": st.sampled_from([*KINDS, "armed", "hello"])},
    optional={
        "op": OPS | PLAIN, "args": ARGS | PLAIN, "id": st.integers() | PLAIN, "thread": st.integers() | PLAIN,
        "task": st.integers() | PLAIN, "site": PLAIN, "key": PLAIN, "target": PLAIN, "reason": PLAIN, "rule": PLAIN,
        "fix": PLAIN, "enforced": PLAIN, "v": PLAIN, "role": PLAIN, "runtime": PLAIN, "version": PLAIN, "full": PLAIN,
    },
)  # fmt: skip
WHOLE = st.fixed_dictionaries(
    {
        "ROLE": st.sampled_from(["guard", "sdk"]), "t": st.sampled_from(KINDS), "op": OPS,
        "args": ARGS, "id": st.integers(0, 9), "thread": st.integers(),
        "key": st.sampled_from(["read", "write", "net"]),
        "target": st.text(max_size=6) | st.just("/etc/passwd"), "reason": st.text(max_size=6),
        "rule": st.none(), "fix": st.none() | st.text(max_size=6), "enforced": st.booleans(),
    }
)  # fmt: skip


@pytest.mark.parametrize("layers", ["guard", "auto"])
@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(lines=st.lists(LINES | WHOLE, min_size=25, max_size=25))
def test_no_message_ends_the_run(sandbox, layers, lines):
    """Lines of any kind with members of any type; a run may refuse them, and end the process that sent them."""
    text = json.dumps(lines).replace("HERE", str(sandbox.folder))
    (sandbox.folder / "lines.json").write_text(text)
    (sandbox.folder / "trace.jsonl").unlink(missing_ok=True)
    done = sandbox.fake(SENDS, policy="read: /\nwrite: .\nnet: 127.0.0.1\nexec: true\n", layers=layers)
    assert done.status == 0 and done.out == "went on\n", done.err[-3000:]
    assert done.trace[-1]["op"] == "run.end" and "failure" not in done.trace[-1]["args"]
