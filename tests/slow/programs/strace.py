"""strace: ptrace(2) of a child of its own."""

from pathlib import Path

from program import Done, Program


def works(folder: Path, done: Done) -> bool:
    return done.returncode == 0 and "write(1" in done.stderr and done.stdout == "hello\n"


CHILD = Program(
    name="strace",
    argv=("strace", "-e", "trace=write", "echo", "hello"),
    policy="exec: *\n",
    works=works,
    commands=("strace",),
    debian=("strace",),
    awaits="ptrace(2) between processes of one run",
    note="of a child of its own",
)
