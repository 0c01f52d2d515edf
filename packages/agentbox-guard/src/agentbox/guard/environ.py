"""What the agent's environment is made of: a safe few, what the policy's `env:` rules allow, private folders, the
guard's own.

What carries code (LD_*, PYTHON*, ...) goes on only by a rule that names it: `Policy.decide` refuses it to any other.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentbox.policy import Policy

SAFE = frozenset({"PATH", "LANG", "LANGUAGE", "SHELL", "TERM", "TZ"})
SAFE_PREFIXES = ("LC_",)
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_SHELL = "/bin/sh"
"""What programs start for want of another; without the variable each shell looks for it in /etc/passwd."""


def build(
    policy: Policy, base: Mapping[str, str], private: Mapping[str, str], guard: Mapping[str, str]
) -> dict[str, str]:
    """The agent's environment.

    `base` is the user's environment, `private` the run's folders (`TMPDIR`, `HOME`), `guard` what every process of the
    run must carry. A rule may give the agent the user's HOME, never the user's TMPDIR.
    """
    environ = dict(private)
    for name, value in base.items():
        if _is_safe(name, base) or (name != "TMPDIR" and policy.decide("env", name).allowed):
            environ[name] = value
    environ.setdefault("PATH", DEFAULT_PATH)
    environ.setdefault("SHELL", DEFAULT_SHELL)
    if "PYTHONPATH" in environ and "PYTHONPATH" in guard:  # the guard adds it to the import path once it is live
        environ["AGENTBOX_PYTHONPATH"] = environ["PYTHONPATH"]
    environ.update(guard)
    return environ


def _is_safe(name: str, base: Mapping[str, str]) -> bool:
    if name == "VIRTUAL_ENV":  # says nothing that PATH does not say when the environment is active
        return base[name] + "/bin" in base.get("PATH", "").split(":")
    return name in SAFE or name.startswith(SAFE_PREFIXES)
