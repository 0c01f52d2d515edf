"""Paths of `write:` rules that do not exist when a run starts."""

from __future__ import annotations

from types import SimpleNamespace

from agentbox.guard import roots
from agentbox.policy import parse


def test_what_landlock_alone_cannot_name_is_told(tmp_path):
    """Without the seccomp layer a missing path cannot be created; with it, or with neither layer, it can."""
    (tmp_path / "there").mkdir()
    policy = parse("write: ./there, ./missing, ./glob/*.txt\n", cwd=str(tmp_path))
    options = SimpleNamespace(policy=policy)
    assert roots.unreachable(options, ("guard", "netns", "landlock")) == [f"{policy.cwd}/missing"]
    assert roots.unreachable(options, ("guard", "netns", "landlock", "seccomp")) == []
    assert roots.unreachable(options, ("guard",)) == []
