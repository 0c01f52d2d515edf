"""The public face of each distribution: these names and no others, each documented, none loaded too early."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

PUBLIC = {
    "agentbox.policy": {
        *("FORMAT", "KINDS", "Decision", "Policy", "PolicyError", "Rule", "canonical_address", "is_special_address"),
        *("carries_code", "code_variables", "load", "loaded_by", "obeyed_by", "parse", "starter_policy"),
    },
    "agentbox.trace": {
        *("EXPORTERS", "Entry", "FORMAT", "KINDS", "Redactor", "Report", "TraceError", "TraceWriter", "describe_body"),
        *("exporter", "load_body", "read", "older", "rotate", "same_redacted", "verify", "verify_from"),
    },
    "agentbox.guard": {"GuardError", "RunOptions", "run"},
    "agentbox.client": {
        *("BoxError", "CheckpointError", "Completed", "Denied", "NotSandboxed", "RequestFailed", "Response"),
        *("aget", "aread_bytes", "aread_text", "arequest", "arun", "awrite_bytes", "awrite_text"),
        *("get", "now", "random", "read_bytes", "read_text", "request", "run", "write_bytes", "write_text"),
    },
    "agentbox.replay": {"Divergence", "Recording", "ReplayError", "ReplayOptions", "ReplaySession", "replay"},
    "agentbox.node": {"RUNTIME", "NodeError", "NodeUnguardable", "NodeUnsupported"},
}
"""A change here is a change for users: it belongs into the changelog."""


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_names_are_these(name: str) -> None:
    """`__all__` holds exactly the names of the table, and all of them are there."""
    module = importlib.import_module(name)
    assert set(module.__all__) == PUBLIC[name]
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name: str) -> None:
    """Every public class and function, and every public method of one, has a docstring."""
    module = importlib.import_module(name)
    missing = []
    for public in module.__all__:
        value = getattr(module, public)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        members = vars(value).items() if inspect.isclass(value) else ()
        methods = [member for member, found in members if inspect.isroutine(found) and not member.startswith("_")]
        missing += [public] if not inspect.getdoc(value) else []
        missing += [f"{public}.{method}" for method in methods if not inspect.getdoc(getattr(value, method))]
    assert missing == []


@pytest.mark.parametrize("name", PUBLIC)
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    """Modules that load their names on demand say what is missing, as other modules do."""
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'"):
        importlib.import_module(name).nonsense


@pytest.mark.parametrize(
    "name", ["agentbox.policy", "agentbox.trace", "agentbox.guard", "agentbox.replay", "agentbox.node"]
)
def test_importing_a_face_loads_next_to_nothing(name: str) -> None:
    """Start-up is the agent's time: a face loads nothing of the standard library that costs time."""
    code = f"import sys, os; before = set(sys.modules); import {name}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    loaded = {module for module in done.stdout.split() if not module.startswith("agentbox")}
    assert loaded <= {"__future__", "errno", "fcntl", "_thread"}
