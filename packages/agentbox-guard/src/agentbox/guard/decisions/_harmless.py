"""Variables, and values of variables, that carry no code though their names are those of some that do.

It knows names and words, no rule and no program; what it does not know is not harmless.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = frozenset(
    ("PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONFAULTHANDLER", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE")
    + ("PYTHONOPTIMIZE", "PYTHONNODEBUGRANGES", "PYTHONSAFEPATH", "PYTHONCOERCECLOCALE", "PYTHONDONTWRITEBYTECODE")
    + ("PYTHONHASHSEED", "PYTHONNOUSERSITE", "PYTHONTRACEMALLOC", "PYTHONMALLOC", "PYTHONPROFILEIMPORTTIME")
    + ("PYTHONVERBOSE", "PYTHONINTMAXSTRDIGITS", "PYTHON_COLORS", "GIT_CONFIG_NOSYSTEM")
    + ("LD_BIND_NOW", "LD_DEBUG", "LD_LIBRARY_VERSION", "LD_TRACE_LOADED_OBJECTS", "LD_VERBOSE", "LD_WARN")
)
"""Variables that say nothing about code though their names begin like those that do, and by which a guard's own go on;
those of the loader have it tell what it does (ld.so(8)), as ldd(1) asks.
"""
_ASKED = frozenset((
    "EDITOR", "GIT_ASKPASS", "GIT_EDITOR", "GIT_PAGER", "GIT_SEQUENCE_EDITOR", "MANPAGER", "PAGER", "SSH_ASKPASS",
    "SUDO_ASKPASS", "VISUAL",
))  # fmt: skip
_QUIET = frozenset(("", ":", "cat", "echo", "false", "true"))
"""Programs that one starts by name when it wants something of its user, and those that only say or do nothing."""
_NOTHING = {
    "GIT_CONFIG_COUNT": ("", "0"),
    "GIT_CONFIG_GLOBAL": ("", "/dev/null"),
    "GIT_CONFIG_SYSTEM": ("", "/dev/null"),
    "GIT_SSH": ("ssh",),
    "GIT_SSH_COMMAND": ("ssh", "ssh -oBatchMode=yes", "ssh -o BatchMode=yes"),
    "LESSCLOSE": ("",),
    "LESSOPEN": ("",),
    "NODE_PATH": ("",),
    "PYTHONBREAKPOINT": ("0",),
    "SSH_ASKPASS": ("",),
}
"""What tools give each other to have nothing of the kind, or what they would do anyway (git(1), less(1))."""
_NODE_OPTIONS = frozenset(
    ("--enable-source-maps", "--expose-gc", "--expose_gc", "--max-old-space-size", "--max_old_space_size")
    + ("--max-semi-space-size", "--no-deprecation", "--no-warnings", "--stack-trace-limit", "--trace-deprecation")
    + ("--trace-uncaught", "--trace-warnings", "--unhandled-rejections")
)
"""What may follow the guard's own value of NODE_OPTIONS: options that load and write nothing (doc/api/cli.md)."""
_MAKE_LETTERS = frozenset("bBdikLmnpqrRsStvw")
"""Options of make(1) without an argument; not -e, by which variables take the place of what a makefile says."""
_MAKE_WORDS = ("--jobserver-auth=", "--jobserver-fds=", "--no-print-directory")
_LESS_LETTERS = frozenset("- FRXSiIKMmnNqQeEcCsuUwWJL")
"""Options of less(1) that show or search otherwise; not those that name files, nor `+`, which types commands."""
_JAVA_SIZES = ("-Xms", "-Xmn", "-Xmx", "-Xss")
_JAVA_PROPERTIES = ("-Dfile.encoding=", "-Djava.awt.headless=", "-Djava.net.preferIPv4Stack=", "-Duser.timezone=")
"""java(1): how much memory, and properties that name no class, file or program."""
_SYSTEM_LIBRARIES = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/lib/")


def is_harmless(name: str, value: str, given: str | None, writable: Callable[[str], bool]) -> bool:
    """Whether nothing of another's choice runs because of this variable. `given` is what the run was started with,
    `writable` whether the run may write a path.
    """
    if name in NAMES or value in _NOTHING.get(name, ()) or (value in _QUIET and name in _ASKED):
        return True
    if name == "NODE_CHANNEL_FD":  # the pipe of child_process.fork
        return value.isdigit()
    if name == "NODE_OPTIONS":
        return _follows_node_options(value, given or "")
    if name == "LESS":
        return _LESS_LETTERS.issuperset(value)
    if name in ("MAKEFLAGS", "MFLAGS"):  # what make gives to all that it starts
        return "$" not in value and all(map(_is_plain_make_word, value.split()))  # which make expands
    if name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        return all(map(_is_plain_java_word, value.split()))
    if name == "PYTHONWARNINGS":  # a category with a dot is imported, before there is any guard (warnings._getcategory)
        return "." not in value
    if name == "LD_LIBRARY_PATH":
        return not value or all(_is_of_the_system(folder, writable) for folder in value.split(":"))
    return False


def _follows_node_options(value: str, given: str) -> bool:
    """Whether only harmless options come after the guard's own, whose last word must end where it does: Node takes all
    up to a blank for a file's name.
    """
    if given and value != given and not value.startswith(given + " "):
        return False
    words = (word.partition("=") for word in value[len(given) :].split())
    return all(
        option in _NODE_OPTIONS and setting.replace("-", "").isalnum() is bool(equals)
        for option, equals, setting in words
    )


def _is_plain_make_word(word: str) -> bool:
    if word.startswith(("-j", "-l")):
        return not word[2:].strip("0123456789.")
    return word.startswith(_MAKE_WORDS) or _MAKE_LETTERS.issuperset(word.removeprefix("-"))


def _is_plain_java_word(word: str) -> bool:
    if word.startswith(_JAVA_SIZES):
        return word[4:].rstrip("kKmMgG").isdigit()
    return word.startswith(_JAVA_PROPERTIES) and word.isprintable()


def _is_of_the_system(folder: str, writable: Callable[[str], bool]) -> bool:
    """Whether a folder of libraries is one of the system's, whatever a link there leads to; an empty name is the
    working directory (ld.so(8)).
    """
    real = os.path.realpath(folder)
    if ";" in folder or writable(real):
        return False
    return all(f"{one}/".startswith(_SYSTEM_LIBRARIES) for one in (folder, real))
