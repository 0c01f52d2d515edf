"""A small agent that does one of everything: four SDK effects, one direct read, and one thing that its policy forbids.

`hatch run demo` runs it; by hand, serve this folder first: `python -m http.server 8765 --bind 127.0.0.1`.
"""

import os
from datetime import UTC, datetime

import agentbox.client as box


def main() -> None:
    # Effects: agentbox does them on the agent's behalf, records the result, and gives it back in a replay.
    task = box.read_text("data/task.txt").strip()
    print(f"task: {task}")

    answer = box.get(os.environ.get("DEMO_URL", "http://127.0.0.1:8765/data/notes.txt"))
    print(f"service: {answer.status} {answer.text.strip()}")

    # Observation: an ordinary open(); the guard lets it pass, hashes what is read, and checks it in a replay.
    with open("data/notes.txt", encoding="utf-8") as file:
        notes = file.read().splitlines()
    print(f"notes: {len(notes)} lines")

    # Denial: no rule allows this, whatever function is used for it.
    try:
        open("/etc/passwd", encoding="utf-8")
    except PermissionError as error:
        print(f"denied: {error}")

    moment = datetime.fromtimestamp(box.now(), UTC)
    box.write_text("out/report.txt", f"{task}\n{moment.isoformat()}: {len(notes)} notes, {answer.text}")
    print(f"clock: {moment.isoformat()}")


if __name__ == "__main__":
    main()
