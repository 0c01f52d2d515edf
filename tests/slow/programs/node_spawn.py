"""Node: starts of a missing and of a denied program fail by an event, as gemini-cli relies on."""

from pathlib import Path

from program import Done, Program

SOURCE = """
const { spawn } = require("child_process");
let left = 2;
for (const name of ["no-such-program-anywhere", process.argv[2]]) {
  const child = spawn(name, ["--version"]);
  child.stdout.on("data", () => {});
  child.on("error", (error) => console.log("error", typeof error.code));
  child.on("close", () => { if (!--left) console.log("all closed"); });
}
"""


def prepare(folder: Path) -> None:
    (folder / "agent.cjs").write_text(SOURCE)


def works(folder: Path, done: Done) -> bool:
    return done.returncode == 0 and "all closed" in done.stdout


MISSING = Program(
    name="node, spawn",
    argv=("node", "agent.cjs", "git"),
    policy="read: .\n",
    works=works,
    commands=("node", "git"),
    debian=("nodejs", "git"),
    prepare=prepare,
    note="of a missing and of a denied program, as gemini-cli does",
)
