"""Sealed: what a path means, resolved name by name as the kernel would. Never trusts os.path, which the agent can edit.

Only silent primitives are used (`readlink` and `getcwd` raise no audit event), so this runs inside the hook.
"""

from __future__ import annotations

from errno import ENAMETOOLONG
from posix import getcwd, readlink
from sys import getfilesystemencoding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_LINKS = 40
"""As the kernel's own limit on symbolic links in one look-up (path_resolution(7))."""

ENCODING = getfilesystemencoding()
NAME_MAX = 255
"""The bytes of one name (limits.h(0p)): a longer one is nowhere, and fails as it would."""


def exact_text(
    path: Any,
    *,
    type=type,
    str=str,
    bytes=bytes,
    issubclass=issubclass,
    plain=str.__str__,
    decode=bytes.decode,
    encoding=ENCODING,
) -> str | None:
    """The characters that C code would use, as an exact str.

    None for what may answer differently twice (PathLike, buffers). No method of the object's own class is called: it
    may lie (`__buffer__`, PEP 688), and would run within the hook. Bytes are read as this interpreter writes names
    (`-X utf8=0`), so that what is looked at is what will be opened.
    """
    if type(path) is not str:
        if issubclass(type(path), str):
            path = plain(path)
        elif issubclass(type(path), bytes):
            path = decode(path, encoding, "surrogateescape")
        else:
            return None
    return None if "\0" in path else path


def resolve(
    path: str,
    follow: bool,
    *,
    readlink=readlink,
    getcwd=getcwd,
    OSError=OSError,
    max_links=MAX_LINKS,
    too_long=ENAMETOOLONG,
    name_max=NAME_MAX,
    encoding=ENCODING,
    len=len,
) -> str | None:
    """The absolute path that `path` names now; the last component is followed when `follow`.

    None when it cannot be told: a loop, or a place deeper than PATH_MAX, where no call says which folder is a link.
    """
    if path[:1] != "/":
        path = getcwd() + "/" + path
    if path.endswith(("/", "/.")):  # a trailing slash follows the link, as the kernel does
        follow = True
    rest = path  # immutable, like all that a frame shows: a signal handler may look into it
    done = ""
    links = 0
    while rest:
        part, _, rest = rest.partition("/")
        if part == "" or part == ".":
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = done + "/" + part
        if not follow and not rest.strip("/"):
            done = here
            break
        try:
            target = readlink(here)
        except OSError as error:  # not a link, or not there: the name itself is what counts
            if error.errno == too_long and len(part.encode(encoding, "surrogateescape")) <= name_max:
                return None
            done = here
            continue
        links += 1
        if links > max_links:
            return None
        if target[:1] == "/" and not (target.startswith("/memfd:") and done[:6] == "/proc/"):
            done = ""
        elif done[:6] == "/proc/" and done[-3:] == "/fd":  # pipe:[7], anon_inode:x, /memfd:x: no place in the tree
            done = here
            continue
        rest = target + "/" + rest if rest else target
    return done or "/"


def of_descriptor(fd: int, *, readlink=readlink, OSError=OSError) -> str | None:
    """The path that an open descriptor stands for, or None when there is none."""
    try:
        return readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None
