"""The name form: one name against one glob of `*`, `?` and sets (docs/spec/policy.md, section 8).

Never lets a glob reach the names that are never passed on: that is decided before any rule is looked at.
"""

from __future__ import annotations

from agentbox.policy.forms.path import glob_segment, segment_matches


def name_matches(glob: str, name: str) -> bool:
    """Whether `name` matches `glob` as a whole; letter case counts."""
    pattern = glob_segment(glob)
    if pattern is None:  # `**`, which among names is `*`
        return True
    return segment_matches(pattern, name)
