"""Arms the guard, once, before user code: says hello, binds the policy into sealed code, installs hook and facades.

Never returns with a guard that is not known to work: `start` returns what went wrong, and its caller ends the process.
"""

from __future__ import annotations

import _frozen_importlib
import _frozen_importlib_external as external
import _imp
import _json
import posix
import sys
from _thread import get_native_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Link = tuple[int, int, int, int]

SEALED_MODULES = ("report", "judge", "libraries", "events/", "hook", "facades/")
"""Executed in this order, after `wire`, `resolve`, `digest` and the policy's path form, in one private namespace.

A folder stands for the MODULES of its table. No name may stand for two things: a default is bound to what it is then.
"""

FROM_VAULT = ("hasher", "digest", "descriptor_pid", "load_module", "own_terminal")
"""What sealed code calls of `digest`, whose namespace it does not share."""

VERSION = 1


def start(shim: str, environ: dict[bytes, bytes]) -> str | None:
    """Arm the guard of this interpreter.

    `shim` is the folder of sitecustomize.py. Returns None, or why it could not be armed.
    """
    channel = environ.get(b"AGENTBOX_CHANNEL", b"").decode("utf-8", "surrogateescape")
    if not channel:
        return "AGENTBOX_CHANNEL is not set: it was started around its supervisor"
    here = shim.rpartition("/")[0]
    space: dict[str, Any] = {"__builtins__": __builtins__, "__name__": "agentbox"}
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, False  # our own folder, to start faster next time
    try:
        run(here + "/wire.py", space)
        bind(space, {"channel": channel, "scan": scanner()})
        welcome, link = greet(space, environ)
        run(here + "/resolve.py", space)
        vault: dict[str, Any] = {"__builtins__": __builtins__, "__name__": "agentbox"}
        run(here + "/digest.py", vault)
        space |= {name: vault[name] for name in FROM_VAULT}
        run(welcome.get("engine") or here.rpartition("/agentbox/")[0] + "/agentbox/policy/forms/path.py", space)
        run(posix_dir(here) + "/kernel/protected.py", space)
        events = run_sealed(here, space)
    finally:
        sys.dont_write_bytecode = writes
    contained = welcome.get("contained") is True
    refused = {name: why for name, why in space["REFUSED"].items() if not contained or name in space["NEVER_TWICE"]}
    loaded = [name for name in refused if name in sys.modules and name not in space["NEVER_TWICE"]]
    if loaded:
        return f"the module {loaded[0]} was loaded before the guard, by a .pth file of this Python"
    encoding = sys.getfilesystemencoding()
    if not contained and encoding not in ("utf-8", "ascii"):
        return f"it writes file names in {encoding}, and the supervisor reads them as UTF-8: leave out -X utf8=0"
    probe = "agentbox.probe." + posix.urandom(8).hex()
    bind(space, settings(welcome, space, here, link) | event_sets(events, probe))
    bind(space, {"ours": (space, vault), "vault": vault})
    bind(space, {"channel": channel, "contained": contained, "refused_modules": refused})
    hook, tell_armed = space["hook"], space["send_all"]
    install(space)
    if not contained:
        stand_ins(space)
        adopt_loaded(space)
    sys.meta_path.insert(0, Finder(posix_dir(posix_dir(here))))
    for namespace in (
        space,
        vault,
    ):  # nothing of the guard is looked up by name any more; C code that imports needs this
        namespace.clear()
        namespace["__builtins__"] = __builtins__
    sys.addaudithook(hook)
    try:
        sys.audit(probe)
    except OSError as error:
        if error.strerror == probe:
            tell_armed(link[1], b'{"t":"armed","thread":%d}\n' % get_native_id())
            extend_path(environ)
            return None
    return "an audit hook that was there first keeps others out (PEP 578)"


def extend_path(environ: dict[bytes, bytes]) -> None:
    """Put the agent's own PYTHONPATH where it would have been, behind the shim: not before the guard is live."""
    extra = environ.get(b"AGENTBOX_PYTHONPATH", b"").decode("utf-8", "surrogateescape")
    sys.path[1:1] = [entry for entry in extra.split(":") if entry]


def run(path: str, space: dict[str, Any]) -> None:
    """Execute a module's code in `space`, from its cached bytecode where there is one."""
    code: Any = external.SourceFileLoader("agentbox", path).get_code("agentbox")
    exec(code, space)


def run_sealed(here: str, space: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Execute SEALED_MODULES in `space`; returns the names of the audit events by family."""
    events = {}
    for name in SEALED_MODULES:
        if name[-1] != "/":
            run(f"{here}/{name}.py", space)
            continue
        run(f"{here}/{name}__init__.py", space)
        for module in space.pop("MODULES"):
            run(f"{here}/{name}{module}.py", space)
            if "EVENTS" in space:
                events[module] = space.pop("EVENTS")
    return events


def bind(space: dict[str, Any], values: dict[str, Any]) -> None:
    """Set keyword defaults by parameter name in every sealed function: the only way by which settings get in."""
    function = type(bind)
    for thing in list(space.values()):
        if type(thing) is function and thing.__kwdefaults__:
            defaults = thing.__kwdefaults__
            for name in defaults:
                if name in values:
                    defaults[name] = values[name]


def scanner() -> Any:
    """The C JSON scanner, without importing json (7 ms); its messages on bad input are json's own."""
    namespace: Any = type(sys.implementation)  # types.SimpleNamespace, without importing types
    context = namespace(
        strict=True,
        object_hook=None,
        object_pairs_hook=None,
        parse_float=float,
        parse_int=int,
        parse_constant=None,
        memo={},
    )
    return _json.make_scanner(context)


def greet(space: dict[str, Any], environ: dict[bytes, bytes]) -> tuple[dict[str, Any], Link]:
    """Say hello on the connection that announcements will use; (welcome, (pid, descriptor, device, inode))."""
    quote = space["quote"]
    version = ".".join(str(part) for part in sys.version_info[:3])
    head = f'{{"t":"hello","v":{VERSION},"role":"guard","runtime":"python","version":"{version}"'
    executable = quote(sys.executable or "")
    fd = space["dial"]()
    space["send_all"](fd, f'{head},"ppid":{posix.getppid()},"executable":{executable}}}\n'.encode())
    welcome = scanner()(space["receive_lines"](fd, 1)[0].decode(), 0)[0]
    if welcome.get("t") != "welcome" or welcome.get("v") != VERSION:
        raise RuntimeError(f"the supervisor said {welcome.get('t')} {welcome.get('v')}: expected welcome {VERSION}")
    status = posix.fstat(fd)
    link = (posix.getpid(), fd, status.st_dev, status.st_ino)
    space["HELLO"] = head + ',"resume":true}\n'
    return welcome, link


def trees(paths: Any) -> tuple[frozenset[str], tuple[str, ...]]:
    """(exact paths, prefixes) for quick tests of "is it this, or below it"."""
    return frozenset(paths), tuple(sorted({path.rstrip("/") + "/" for path in paths}))


def libraries(resolve: Any) -> list[str]:
    """What imports read, frozen now: the standard library, and of the import path what belongs to this installation.

    A project's own folder that a .pth file puts on the path (an editable install) is not among them: the policy speaks
    of that.
    """
    roots = {posix_dir(external.__dict__.get("__file__") or sys.modules["os"].__file__)}
    homes = tuple(
        home.rstrip("/") + "/"
        for home in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
        if home != "/usr"
    )
    for entry in sys.path[1:]:
        if (
            entry.startswith(homes)
            or "/site-packages" in entry
            or "/dist-packages" in entry
            or entry.startswith("/usr/lib/python3")
        ):
            roots.add(entry)
    files = {sys.executable, posix_dir(sys.executable) + "/pyvenv.cfg", sys.prefix + "/pyvenv.cfg"}
    return [path for path in {resolve(entry, True) for entry in roots | files if entry} if path and path.count("/") > 1]


def posix_dir(path: str | None) -> str:
    """The folder of a file."""
    return (path or "").rpartition("/")[0]


def settings(welcome: dict[str, Any], space: dict[str, Any], here: str, link: Link) -> dict[str, Any]:
    """The values of all keyword defaults that depend on this run, by parameter name."""
    policy = welcome["policy"]
    library = libraries(space["resolve"])
    own = [posix_dir(posix_dir(here))]
    if welcome.get("engine"):
        own.append(posix_dir(posix_dir(posix_dir(welcome["engine"]))))
    private = [(name, tree, tree + "/") for name, tree in welcome["writable"].items()]
    hidden, sealed = welcome["hidden"], [*welcome["sealed"], *own]
    ancestors = set()
    for path in [*hidden, *sealed]:
        while path := posix_dir(path):
            ancestors.add(path)
    return {
        "asking": welcome["ask"],
        "observe": welcome["mode"] == "observe",
        "rules": space["path_rules"](policy["rules"]),
        "policy_name": policy.get("name") or "the policy",
        "cwd": welcome["cwd"],
        "private": tuple(private),
        "owned": trees([tree for _, tree, _ in private]),
        "hidden": trees(hidden),
        "sealed": trees(sealed),
        "readable": trees([*welcome["readable"], *library, *own]),
        "listable": frozenset([*welcome["listable"], *(space["resolve"](entry, True) for entry in sys.path)]),
        "ancestors": frozenset(ancestors),
        "standard": tuple(path + "/" for path in library if path.endswith("/lib-dynload")),
        "streams": streams(),
        "shared": "/" + posix_dir(welcome["writable"]["TMPDIR"]).rpartition("/")[2] + "-",  # as RunDir.remove has it
        "given": frozenset(
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            for name, value in posix.environ.items()
            if name.decode("utf-8", "surrogateescape") in space["LIBRARY_FILES"]
        ),
        **protection(welcome.get("protected")),
        "library": tuple(path + "/" for path in library + own),
        "required": tuple(welcome["env"].items()),
        "judged": (frozenset(welcome["judged"]["names"]), tuple(welcome["judged"]["prefixes"])),
        "openssl": openssl(),
        "hello": space["HELLO"],
        "link": link,
    }


def protection(protected: Any) -> dict[str, Any]:
    """The settings of the built-in protection inside write roots, which kernel layers hold where there are any."""
    if not protected:
        return {}
    lifting = tuple((root, parts) for root, parts in protected["lifting"])
    trees, homes = tuple(protected["exempt"]), tuple(protected["homes"])
    return {"protecting": True, "lifting": lifting, "exempt": trees, "homes": homes}


def streams() -> tuple[frozenset[str], frozenset[str]]:
    """The files that standard input, output and error are: what a process may open again by name, to read, to write."""
    found: tuple[set[str], set[str]] = (set(), set())
    for fd in (0, 1, 2):
        try:
            path = posix.readlink(f"/proc/self/fd/{fd}")
            if not path.startswith("/"):
                continue  # a pipe or a socket has no name, and each open may have to be answered by the supervisor
            info = posix.open(f"/proc/self/fdinfo/{fd}", posix.O_RDONLY)
            flags = int(posix.read(info, 4096).partition(b"flags:")[2].split()[0], 8)
            posix.close(info)
        except OSError:
            continue
        mode = flags & posix.O_ACCMODE
        if mode != posix.O_WRONLY:
            found[0].add(path)
        if mode != posix.O_RDONLY:
            found[1].add(path)
    return frozenset(found[0]), frozenset(found[1])


def openssl() -> Any:
    """The import spec of `_hashlib`, whose SHA-256 is five times faster than the built-in one; None without a file."""
    for entry in sys.path:
        path = f"{entry}/_hashlib{_imp.extension_suffixes()[0]}"
        try:
            posix.stat(path)
        except OSError:
            continue
        return _frozen_importlib.ModuleSpec("_hashlib", None, origin=path)
    return None


def event_sets(events: dict[str, tuple[str, ...]], probe: str) -> dict[str, Any]:
    """Which events the hook looks at, by family."""
    sets: dict[str, Any] = {family: frozenset(names) for family, names in events.items()}
    sets["interesting"] = frozenset([probe, *(name for names in events.values() for name in names)])
    sets["probe"] = probe
    return sets


def install(space: dict[str, Any]) -> None:
    """Put the facades in place of the C functions, in every module that holds them by now."""
    import _socket
    import os

    methods = {}
    for place, name, facade in space["FACADES"]:
        holder = _socket.socket if place == "_socket.socket" else sys.modules[place]
        old = getattr(holder, name, None)
        if old is None:
            continue
        new = disguise(space[facade], old)
        if holder is _socket.socket:  # a C type, which takes no new attributes: a type of our own takes its place
            methods[name] = new
            continue
        setattr(holder, name, new)
        if holder is posix:
            setattr(os, name, new)
            for capability in (os.supports_dir_fd, os.supports_fd):
                if old in capability:
                    capability.add(new)
    guarded = type("socket", (_socket.socket,), {"__slots__": (), "__module__": "_socket", **methods})
    for name in ("socket", "SocketType"):
        setattr(_socket, name, guarded)


def stand_ins(space: dict[str, Any]) -> None:
    """Bind the table ALONE: `dressed` for what calls the real function itself, `late` for what the hook calls."""
    late, dressed = [], []
    for place, name, facade in space["ALONE"]:
        new = space[facade]
        module, _, kind = place.partition(".")
        new.__name__ = new.__qualname__ = name
        new.__module__ = module
        if "real" in new.__kwdefaults__:
            wrapped = classmethod(new) if name == "_rebuild" else new
            dressed.append((module, kind, name, wrapped, new.__kwdefaults__))
        else:
            late.append((module, name, new))
    held = frozenset(module for module, *_ in late if module not in space["REFUSED"])
    bind(space, {"late": tuple(late), "dressed": tuple(dressed), "held_modules": held})


def adopt_loaded(space: dict[str, Any]) -> None:
    """Put the stand-ins into the modules that are there by now; `os` has those of `posix` by name."""
    import os

    for module in {place.partition(".")[0] for place, _, _ in space["ALONE"]}.intersection(sys.modules):
        space["adopt"](sys.modules[module], module)
    for place, name, _ in space["ALONE"]:
        if place == "posix" and hasattr(posix, name):
            setattr(os, name, getattr(posix, name))


def disguise(new: Any, old: Any) -> Any:
    """Name and document a facade as what it stands for."""
    new.__name__, new.__qualname__, new.__doc__ = old.__name__, old.__qualname__, old.__doc__
    new.__module__ = getattr(old, "__module__", None)
    return new


class Finder:
    """Finds `agentbox.client` for an agent whose Python has none, and before a foreign `agentbox` package."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The namespace `agentbox`, with our own folder first; everything else is left to the other finders."""
        if name != "agentbox":
            return None
        found = external.PathFinder.find_spec(name, path)
        spec = _frozen_importlib.ModuleSpec(name, None, is_package=True)
        places = [self._folder]
        if found is not None and found.loader is None:
            places += [place for place in found.submodule_search_locations or () if place != self._folder]
        spec.submodule_search_locations = places
        return spec
