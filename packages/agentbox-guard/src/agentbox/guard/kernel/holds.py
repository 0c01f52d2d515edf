"""What each layer holds of each kind of rule, and what nothing holds: the words of `agentbox doctor` and of
docs/reference/layers.md.

Never says more than the layer's `enforces` does; a test holds the two together.
"""

from __future__ import annotations

HOLDS: dict[str, dict[str, str]] = {
    "read": {
        "guard": "every file that the interpreter opens or lists, decided on the resolved file",
        "landlock": "files outside of every root of a rule; within a root, globs are not told apart",
        "seccomp": "every open, watch and extended attribute of every program, on the very object that it then gets",
        "seatbelt": "roots and globs of rules",
    },
    "list": {
        "guard": "every folder that the interpreter lists, decided on the resolved folder",
        "landlock": "folders outside of every root of a rule; the folders below a root are not told apart",
        "seccomp": "every folder that any program opens, on the very object that it then gets",
        "seatbelt": "folders and globs of rules",
    },
    "write": {
        "guard": "every file that the interpreter changes, decided on the resolved file",
        "landlock": "changes outside of every root of a rule; times, modes and attributes are not covered",
        "seccomp": "every open for writing and every change of a path, built-in protection included",
        "seatbelt": "roots and globs of rules, and built-in protection by name",
    },
    "net": {
        "guard": "every look-up and every address that the interpreter connects to, binds or sends to",
        "netns": "any way out that is not asked for: the network is empty but for a loopback and a DNS stub",
        "seccomp": "every connection, binding and datagram, decided by name and port and made by the supervisor",
    },
    "exec": {
        "guard": "every program that the interpreter starts, with its arguments",
        "landlock": "programs outside of the system's folders and of those that rules name",
        "seccomp": "every program that the agent starts, decided on the resolved file, its arguments and what injects "
        "code; of what those start in turn, what the run may write, memory files and the loader",
        "seatbelt": "programs outside of the system's folders and of those that rules name",
    },
    "env": {
        "guard": "the launcher builds the environment from nothing, for any command",
    },
}
"""Rule kind to layer to what that holds. `guard` means the interpreter's guard, the launcher and the supervisor."""

UNHELD: dict[str, str] = {
    "read": "whether a file exists, its size, times and owner (stat), and where a link leads; "
    "what the caller left open as standard input",
    "list": "whether a name that is guessed exists (stat); when the names of an allowed folder are used (watches)",
    "write": "the space that is used; what is written to an open standard output or error",
    "net": "what is said over an allowed connection, and what is told by asking for names below an allowed *.name",
    "exec": "what an allowed program does within the rules for files and network; "
    "which programs of the system it starts in turn (it is recorded and confined): a rule for `xargs`, `env`, `make`, "
    "`find`, `git` or a shell lets the agent start any of them through it",
    "env": "variables that a program sets for those that it starts itself, but for what injects code",
}
"""Rule kind to what no layer enforces."""

NOTICED: dict[str, str] = {
    "owner": "files of root and of other users show the owner 65534, as an ordinary user's namespace maps that user "
    "alone (user_namespaces(7)); ssh then refuses settings of root's: give it others with -F",
    "ptrace": "strace, gdb and crash handlers cannot trace: who traces a program acts in its name, past the rules for "
    "it",
}
"""What programs notice of the layers, and why: `owner` for runs of ordinary users only."""

NEEDS: dict[str, str] = {
    "guard": "a Python program (or another language's guard)",
    "netns": "Linux 5.14, user namespaces for ordinary users or CAP_SYS_ADMIN",
    "landlock": "Linux 5.13 with Landlock; 6.12 for signals and abstract sockets",
    "seccomp": "Linux 5.14, x86_64 or aarch64, and leave to read what it starts; 6.6 is four times faster",
    "seatbelt": "macOS; written and tested as text only, never used by a run",
}
"""Layer to what it needs of a machine."""
