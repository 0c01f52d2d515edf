"""The console script's first step: checks that `agentbox` is our namespace, then starts the command.

Never imports `agentbox` before the check: another distribution's `agentbox/__init__.py` hides all of ours, and a user
would only see an error about a missing name.
"""

from __future__ import annotations

import _imp
import gc
import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType


def main() -> int:
    """Start the `agentbox` command; returns its exit status only where the command could not be loaded."""
    problem = _problem()
    if problem:
        sys.stderr.write(f"agentbox: {problem}\n")
        return 70
    if sys.pycache_prefix is None and not sys.flags.optimize:
        sys.meta_path.insert(0, Finder)
    gc.set_threshold(50_000)  # what is loaded is no garbage, and looking for some takes a tenth of an agent's start
    try:
        from agentbox.cli.main import main as command

        status = command()
    except KeyboardInterrupt:  # while the command itself was still being loaded
        return 130
    # All is written and closed. Taking the interpreter apart would cost the caller five milliseconds more.
    os._exit(status)


class Finder:
    """Finds our own modules where they are known to be: a run loads a hundred of them, and this takes two thirds of the
    time.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A module or package of Python code below `agentbox`; everything else is left to the other finders."""
        if path is None or not name.startswith("agentbox."):
            return None
        last = name.rpartition(".")[2]
        for folder in path:
            for place, file in ((folder, last), (f"{folder}/{last}", "__init__")):
                source = f"{place}/{file}.py"
                try:
                    facts = os.stat(source)
                except OSError:
                    continue
                cached = f"{place}/__pycache__/{file}.{sys.implementation.cache_tag}.pyc"
                spec = ModuleSpec(name, Loader(name, source, cached, facts), origin=source)
                spec.has_location = True
                spec.cached = cached
                if place != folder:
                    spec.submodule_search_locations = [place]
                return spec
        return None


class Loader(SourceFileLoader):
    """Loads byte code that is as the interpreter wrote it for this very source, and leaves all else to its base."""

    def __init__(self, name: str, path: str, cached: str, facts: os.stat_result) -> None:
        super().__init__(name, path)
        self._cached = cached
        # Lib/importlib/_bootstrap_external.py, _validate_timestamp_pyc: no flags, then time and size of the source
        words = (0, int(facts.st_mtime), facts.st_size)
        self._head = MAGIC_NUMBER + b"".join((word & 0xFFFFFFFF).to_bytes(4, "little") for word in words)

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code."""
        try:
            descriptor = os.open(self._cached, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)
        except OSError:
            data = b""
        if not data.startswith(self._head):
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(data)[len(self._head) :])
        _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
        return code


def _problem() -> str:
    """Why `agentbox` cannot be imported as a namespace, or "" if it can."""
    # Asking the finders directly: importlib.util would cost more than the whole check.
    for finder in sys.meta_path:
        spec = finder.find_spec("agentbox", None)
        if spec is not None:
            break
    else:
        return "the package agentbox is not installed (pip install agentbox-cli)"
    if spec.origin is None:  # a PEP 420 namespace has no file of its own
        return ""
    owner = _owner(spec.origin)
    whose = f"the distribution {owner}" if owner else "something else"
    way_out = f"pip uninstall {owner}, then " if owner else "remove that file, then "
    return (
        f"{whose} owns {spec.origin!r}, which hides the agentbox distributions"
        f" ({way_out}pip install --force-reinstall agentbox-cli)"
    )


def _owner(path: str) -> str:
    """The name of the installed distribution that brought the file at `path`, or ""."""
    from importlib.metadata import distributions

    for distribution in distributions():
        for file in distribution.files or ():
            if file.name == "__init__.py" and str(distribution.locate_file(file)) == path:
                return distribution.name
    return ""
