"""Sealed: the audit events by which a program could get around the guard: native code, other interpreters, guard state.

What it refuses no honest agent needs; what cannot be seen from here (crafted bytecode, signal frames) is the kernel
layers' part.
"""

from __future__ import annotations

from sys import _getframe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.judge import FOREIGN_REASON, HIDDEN_REASON, SEALED_REASON, judge_file
    from agentbox.guard.python.report import Refusal, refuse, witness
    from agentbox.guard.python.resolve import exact_text, resolve
    from agentbox.policy.forms.path import path_fix

EVENTS = (
    *("import", "object.__getattr__", "object.__setattr__", "object.__delattr__", "cpython.PyInterpreterState_New"),
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_frames", "sys._current_exceptions"),
    "sys.addaudithook",  # a hook of the agent's own is called within the guard's, for what that one opens and sends
    *("ctypes.dlopen", "ctypes.dlsym", "ctypes.dlsym/handle", "ctypes.cdata", "ctypes.cdata/buffer"),
    *("ctypes.call_function", "ctypes.PyObj_FromPtr", "ctypes.string_at", "ctypes.wstring_at", "ctypes.addressof"),
    *("ctypes.create_string_buffer", "_posixsubprocess.fork_exec"),
)
REFUSED = {
    "ctypes": "it calls native code, which no guard inside the interpreter can follow",
    "_ctypes": "it calls native code, which no guard inside the interpreter can follow",
    "_cffi_backend": "it calls native code, which no guard inside the interpreter can follow",
    "_tkinter": "Tcl opens files and starts programs on its own",
    "readline": "it reads and writes files without an audit event before Python 3.14",
    "_gdbm": "it opens files without an audit event",
    "_dbm": "it opens files without an audit event",
    "spwd": "it reads the password file without an audit event",
    "nis": "it asks the network without an audit event",
    "_interpreters": "a new interpreter has no guard",
    "_xxsubinterpreters": "a new interpreter has no guard",
    "_xxinterpchannels": "a new interpreter has no guard",
    "_interpchannels": "a new interpreter has no guard",
    "_interpqueues": "a new interpreter has no guard",
    "_remote_debugging": "it writes into the memory of processes",
    "_testcapi": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testinternalcapi": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testlimitedcapi": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testclinic": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testclinic_limited": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testbuffer": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testmultiphase": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testsinglephase": "it is CPython's own test code, which breaks the interpreter's rules",
    "_testexternalinspection": "it is CPython's own test code, which breaks the interpreter's rules",
    "_xxtestfuzz": "it is CPython's own test code, which breaks the interpreter's rules",
    "_ctypes_test": "it is CPython's own test code, which breaks the interpreter's rules",
    "_imp": "a second copy of it would load modules unseen",
    "posix": "a second copy of it would be without the guard's own open",
    "_posixsubprocess": "a second copy of it would start programs unseen",
    "_signal": "a second copy of it would send signals unseen",
    "sys": "a second copy of it would write files unseen",
}
NEVER_TWICE = frozenset(("_imp", "posix", "_posixsubprocess", "_signal", "sys"))
"""Refused under kernel layers too: a second copy of these would lack what the guard tells of them."""

UNHELD = (
    "native code is loaded only from where the agent cannot write; "
    "with the kernel layers (without --layers guard) also from installed packages, in a site-packages folder"
)
HELD_REASON = "a copy without the guard's own functions would open files and names unseen"
IMPORT_ERROR = -1
"""In place of an errno: the hook raises ImportError, which `try: import readline` handles, as cmd, pdb and code do."""


def on_import(
    name: Any,
    filename: Any,
    *,
    refused_modules=REFUSED,
    held_modules=frozenset(),
    vault=None,
    _getframe=_getframe,
    standard=(),
    contained=False,
    cwd="/",
    exact_text=exact_text,
    resolve=resolve,
    judge_file=judge_file,
    path_fix=path_fix,
    builtin=(HIDDEN_REASON, SEALED_REASON, FOREIGN_REASON),
    unheld=UNHELD,
    refuse=refuse,
    witness=witness,
    type=type,
    int=int,
    str=str,
    import_error=IMPORT_ERROR,
    held_reason=HELD_REASON,
) -> Refusal | None:
    """`import(name, filename, …)`: once by name for what is not loaded yet, again with an extension module's file."""
    stem = ""
    if filename is not None:
        text = exact_text(filename)
        path = resolve(text, True) if text is not None else None
        if path is None:
            return refuse("code.load", {"path": "?"}, "code", "?", "the extension module's file is no plain path", None)
        stem = path.rpartition("/")[2].partition(".")[0]
        asked = (exact_text(name) or "?").rpartition(".")[2]  # whose PyInit_ is called, whatever the file's name is
        if asked in refused_modules:
            stem = asked
        if stem in held_modules or asked in held_modules:
            caller = _getframe(3).f_back  # behind on_import, on_interpreter, dispatch and the hook
            if caller is None or caller.f_globals is not vault:
                return refuse("code.load", {"name": stem}, "code", "module " + stem, held_reason, None)
        if stem not in refused_modules:
            judged = judge_file("read", path)
            if type(judged) is str:
                fix = None if judged in builtin else path_fix("read", path, cwd)
                return refuse("code.load", {"path": path}, "read", path, judged, fix)
            installed = "/site-packages/" in path or "/dist-packages/" in path
            if not (contained and installed) and type(judge_file("write", path)) is int:
                return refuse("code.load", {"path": path}, "code", path, unheld, None)
            if judged == 0 and path.startswith(standard):  # they raise audit events for what they do
                return None
            return witness("code.load", {"path": path}, path)
    else:
        stem = exact_text(name) or ""
    if stem not in refused_modules:
        return None
    reason = refused_modules[stem] + "; no rule can allow it without the kernel layers"
    refusal = refuse("code.load", {"name": stem}, "code", "module " + stem, reason, None)
    return None if refusal is None else (import_error, refusal[1], stem)


FUNCTION = type(on_import)


def on_attribute(
    event: str, thing: Any, name: Any, *, ours=(), refuse=refuse, type=type, str=str, function=FUNCTION
) -> Refusal | None:
    """Attributes of code: free for the agent's own functions.

    The guard's keyword defaults are its settings: neither read nor replaced.
    """
    if type(thing) is not function:
        return None
    space = thing.__globals__
    if space is not ours[0] and space is not ours[1]:
        return None
    if event == "object.__getattr__" and type(name) is str and name != "__kwdefaults__":
        return None  # code is immutable and holds nothing; tracebacks need it
    target = "the guard's own functions"
    return refuse("code.load", {"name": "guard"}, "code", target, "they are not the agent's to look into", None)


def on_interpreter(
    event: str,
    args: tuple[Any, ...],
    *,
    on_import=on_import,
    on_attribute=on_attribute,
    refuse=refuse,
    contained=False,
) -> Refusal | None:
    """The family's dispatcher. `contained`: kernel layers hold native code as well, so it need not be kept out."""
    if event == "import":
        return on_import(args[0], args[1])
    if event[:7] == "object.":
        return on_attribute(event, args[0], args[1])
    if contained or event == "_posixsubprocess.fork_exec":  # 3.14: the facade has decided already
        return None
    return refuse("code.load", {"name": event}, "code", event, "it reaches the guard's state or native memory", None)
