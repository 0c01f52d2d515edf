"""An agent that changes files, so that there is something to undo. With snapback (`pip install snapback-cli`):

    agentbox run -p checkpoint.policy --checkpoint -- python checkpoint_agent.py
    snapback undo

The snapshot is taken right before the first change, whatever makes it; an agent that only reads costs none.
"""

import agentbox.client as box


def main() -> None:
    # A read changes nothing: no checkpoint yet.
    task = box.read_text("data/task.txt").strip()

    # The first change. agentbox takes the snapshot, prints its id, and only then writes.
    box.write_text("out/plan.txt", f"1. {task}\n2. done\n")
    print("wrote out/plan.txt")

    # One checkpoint covers the run: this change, made without the SDK, is undone with the other.
    with open("out/log.txt", "w", encoding="utf-8") as log:
        log.write(f"planned: {task}\n")
    print("wrote out/log.txt")


if __name__ == "__main__":
    main()
