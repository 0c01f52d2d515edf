"""The table of real programs. Another one is a file here and a line below."""

from program import Program

from programs import chromium, git, go, java, jupyter, node_spawn, ssh, strace

PROGRAMS: tuple[Program, ...] = (
    git.CLONE,
    ssh.INCLUDE,
    java.COMPILE,
    strace.CHILD,
    go.BUILD,
    jupyter.CONVERT,
    chromium.DUMP,
    node_spawn.MISSING,
)
