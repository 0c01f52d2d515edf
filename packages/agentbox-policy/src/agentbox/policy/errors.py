"""The one error of `agentbox.policy`: what is wrong with a policy, where, and the way out.

Never raised by a decision: what cannot be decided is denied.
"""

from __future__ import annotations

LONGEST_TEXT = 300
"""Characters of a message: what was got may be a whole line of a file that is no policy at all."""


class PolicyError(ValueError):
    """A policy that cannot be used.

    `code` is stable for scripts (docs/spec/policy.md, section 10 lists them), `hint` the way out (may be empty), `file`
    the policy as the user named it, `line` counts from 1, or is 0 when the whole file is meant. `str()` gives place,
    got and expected in one line, without the hint.
    """

    def __init__(self, text: str, *, code: str, hint: str = "", file: str = "", line: int = 0) -> None:
        text = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
        super().__init__(text)
        self.text = text
        self.code = code
        self.hint = hint
        self.file = file
        self.line = line

    def at(self, file: str, line: int) -> PolicyError:
        """The same error with its place; who finds a fault in a value does not know where the value stands."""
        self.file = file
        self.line = line
        return self

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}" if place else self.text
