"""ssh: its system configuration with files that it includes, which it accepts of root and of the user only."""

from pathlib import Path

from program import Done, Program


def works(folder: Path, done: Done) -> bool:
    return done.returncode == 0 and "hostname example.org" in done.stdout and "Bad owner" not in done.stderr


INCLUDE = Program(
    name="ssh -G",
    argv=("ssh", "-G", "example.org"),
    policy="read: /etc/ssh\nexec: ssh\n",
    works=works,
    commands=("ssh",),
    debian=("openssh-client",),
    note="with the files that root's configuration includes",
)
