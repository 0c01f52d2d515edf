"""The console script's first step: checks that `agentbox` is our namespace, then starts the command.

Never imports `agentbox` before the check: another distribution's `agentbox/__init__.py` hides all of ours, and a user
would only see an error about a missing name.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> int:
    """Start the `agentbox` command; returns its exit status only where the command could not be loaded."""
    problem = _problem()
    if problem:
        sys.stderr.write(f"agentbox: {problem}\n")
        return 70
    gc.set_threshold(50_000)  # what is loaded is no garbage, and looking for some takes a tenth of an agent's start
    try:
        from agentbox.cli.main import main as command

        status = command()
    except KeyboardInterrupt:  # while the command itself was still being loaded
        return 130
    # All is written and closed. Taking the interpreter apart would cost the caller five milliseconds more.
    os._exit(status)


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
