"""The name form: one name against one glob of `*`, `?` and sets (docs/spec/policy.md, section 8).

It never knows a name of its own: which of them a glob leaves out is decided by the rule kind.
"""

from __future__ import annotations

from agentbox.policy.forms.path import glob_segment, segment_matches


def name_matches(glob: str, name: str) -> bool:
    """Whether `name` matches `glob` as a whole; letter case counts."""
    pattern = glob_segment(glob)
    if pattern is None:  # `**`, which among names is `*`
        return True
    return segment_matches(pattern, name)
