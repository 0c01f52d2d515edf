"""git: a clone of a repository on this machine."""

import subprocess
from pathlib import Path

from program import Done, Program


def prepare(folder: Path) -> None:
    ids = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    (folder / "origin").mkdir()
    (folder / "origin" / "file").write_text("content\n")
    for words in (["init", "-q", "-b", "main"], ["add", "file"], [*ids, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=folder / "origin", check=True)


def works(folder: Path, done: Done) -> bool:
    return done.returncode == 0 and (folder / "out" / "copy" / "file").read_text() == "content\n"


CLONE = Program(
    name="git clone",
    argv=("git", "clone", "-q", "{folder}/origin", "out/copy"),
    policy="read: .\nwrite: ./out/\nexec: git, exec: sh\n",
    works=works,
    commands=("git",),
    debian=("git",),
    prepare=prepare,
    note="of a local repository",
)
