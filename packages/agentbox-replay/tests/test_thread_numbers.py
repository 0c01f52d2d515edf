"""Threads whose system's ident is given out again: each keeps a lane of its own, in a recording and in its replay."""

import json
import subprocess
import sys

REUSING = """
import _thread, threading
import agentbox.client as box

idents = set()
def work(number):
    idents.add(threading.get_ident())
    box.write_text(f"out/{number}", str(box.random()))

for number in range(4):  # one after the other, so that the system gives the same ident again
    thread = threading.Thread(target=work, args=(number,))
    thread.start()
    thread.join()
done = _thread.allocate_lock()
done.acquire()
_thread.start_new_thread(lambda: (work("raw"), done.release()), ())
done.acquire()
print(len(idents))
"""


def agentbox(folder, *words):
    return subprocess.run(
        [sys.executable, "-P", "-m", "agentbox.cli", *words, "--", sys.executable, "agent.py"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip


def test_an_ident_that_is_given_out_again_is_another_lane(tmp_path):
    """pthread_self(3) may equal that of a thread that has ended; the plain interpreter shows that it does here."""
    (tmp_path / "agentbox.policy").write_text("read: ./agent.py\nwrite: ./out/\n")
    (tmp_path / "agent.py").write_text(REUSING)
    done = agentbox(tmp_path, "run", "-q")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 5  # the premise: idents were given out again
    entries = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_bytes().splitlines()]
    lanes = [entry["lane"] for entry in entries if entry["op"] == "fs.write" and entry["kind"] == "effect"]
    assert lanes == ["0.1", "0.2", "0.3", "0.4", "0.5"]
    replayed = agentbox(tmp_path, "replay")
    assert replayed.returncode == 0, replayed.stderr
