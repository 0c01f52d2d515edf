"""Starts the agentbox guard before any user code. Never lets the interpreter go on unguarded.

Its folder is first on PYTHONPATH, so `site` imports it. It runs on whatever Python the agent uses, so it keeps to
syntax that old versions parse, to say what is wrong with them.
"""

import sys


def _start():
    if sys.version_info < (3, 11):
        return "Python %d.%d has no guard: expected 3.11 or later" % sys.version_info[:2]
    import posix
    from _frozen_importlib_external import SourceFileLoader

    shim = __file__.rpartition("/")[0]
    path = shim.rpartition("/")[0] + "/bootstrap.py"
    space = {"__name__": "agentbox.guard.python.bootstrap", "__file__": path}
    exec(SourceFileLoader("bootstrap", path).get_code("bootstrap"), space)
    return space["start"](shim, posix.environ)


try:
    _failure = _start()
except BaseException as _error:  # the interpreter would print any exception and go on without a guard
    _failure = "%s: %s" % (type(_error).__name__, _error)
if _failure:
    import _signal
    import posix

    try:
        if _failure.startswith("KeyboardInterrupt"):  # Ctrl-C, which ends a program without a guard by the signal too
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
            _signal.raise_signal(_signal.SIGINT)
        posix.write(2, ("agentbox: the guard could not arm: %s\n" % _failure).encode("utf-8", "replace"))
    finally:  # also where nothing can be said: standard error may be closed, or a full pipe
        posix._exit(70)
del _start, _failure

# The user's own sitecustomize, which ours hides: it runs guarded, like all user code.
from _frozen_importlib_external import PathFinder as _PathFinder  # noqa: E402

_shim = __file__.rpartition("/")[0]
_spec = _PathFinder.find_spec("sitecustomize", [_entry for _entry in sys.path if _entry != _shim])
if _spec is not None and _spec.loader is not None:
    exec(_spec.loader.get_code("sitecustomize"), {"__name__": "sitecustomize", "__file__": _spec.origin})
del _PathFinder, _shim, _spec
