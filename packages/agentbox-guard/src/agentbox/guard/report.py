"""What the user reads at the end of a run: what was recorded, and what was refused and how to allow it. It only words
things.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agentbox.guard.session import Denial

MOST_SHOWN = 10
"""Different denials that are named at the end; the trace has them all."""
LONGEST_LINE = 4096
"""Characters; what is longer is no rule that anybody could paste."""
OBSERVING = "OBSERVE MODE: nothing is enforced; what the policy would deny is recorded and let pass"
OBSERVED = "OBSERVE MODE: nothing was enforced; run without --observe to enforce the policy"


OWN_SERVER = "the run itself listened there, but not at that time: it needs no rule for that"


class Denials:
    """The denials of a run, counted by what was refused; memory stays flat however many there are.

    `live` is told the first of each as it happens, so that the user of a program that waits for what was denied learns
    why; what was told so is only counted at the end.
    """

    __slots__ = ("_left_out", "_live", "_own", "_seen")

    def __init__(self, live: Callable[[str], None] | None = None) -> None:
        self._live = live
        self._own: set[int] = set()
        self._seen: dict[tuple[str, str], tuple[int, Denial]] = {}
        self._left_out = 0

    def add(self, denial: Denial) -> None:
        """Count one. Names of one form (`./out/tmp*`) are one."""
        key = (denial.key, denial.fix if denial.fix and "  # " in denial.fix else denial.target)
        count, first = self._seen.get(key, (0, denial))
        if count or len(self._seen) < MOST_SHOWN:
            self._seen[key] = count + 1, first
            if not count and self._live is not None:
                self._live(self._line(denial, ""))
        else:
            self._left_out += 1

    def listens(self, port: int) -> None:
        """The run itself was let listen at this port: who tries to reach it too early needs no rule."""
        self._own.add(port)

    def lines(self) -> Iterator[str]:
        """One line for each, without prefix; of what was told live those that happened again, in short."""
        for count, denial in self._seen.values():
            if self._live is None:
                yield self._line(denial, f" ({count} times)" if count != 1 else "")
            elif count > 1:
                yield f"{_verb(denial)} {shown(denial.key)} {told(denial.target)}: {count} times in all"
        if self._left_out:
            yield f"and {self._left_out} more denials, see: agentbox show --kind deny"

    def _line(self, denial: Denial, times: str) -> str:
        way = f"; to allow it: {shown(denial.fix, LONGEST_LINE)}" if denial.fix else ""
        if denial.key == "net" and local_port(denial.target) in self._own:
            way = f"; {OWN_SERVER}"
        reason = shown(denial.reason, LONGEST_LINE)
        return f"{_verb(denial)} {shown(denial.key)} {told(denial.target)}{times}: {reason}{way}"


_ADVICE = ("to allow", "add ", "read:", "list:", "write:", "net:", "exec:", "env:", "allow:")


def reads_like_advice(text: str) -> bool:
    """Whether somebody could take a text that a program chose for a line to add to a policy."""
    lower = text.lower()
    return any(word in lower for word in _ADVICE)


def told(target: str) -> str:
    """The target of a denial, for a line of a report: in quotes where it reads like advice."""
    text = shown(target)
    return f'"{text}"' if reads_like_advice(text) else text


def _verb(denial: Denial) -> str:
    return "denied" if denial.enforced else "would deny"


def ended_by(program: str, number: int) -> str:
    """What is said of a command that a signal ended, without prefix."""
    import _signal  # type: ignore[import-not-found]

    names = (name for name in dir(_signal) if name[:3] == "SIG" and name[3:4].isalpha())
    name = next((name for name in names if getattr(_signal, name) == number and name != "SIGCLD"), "")
    return f"{shown(program)} was ended by signal {number}{f' ({name})' if name else ''}"


def local_port(target: str) -> int:
    """The port of a denial's target that is one of the loopback (`127.0.0.1:80`, `[::1]:80`), else 0."""
    from agentbox.guard.kernel.netns import is_local

    host, _, port = target.rpartition(":")
    return int(port) if is_local(host.strip("[]"), ()) and port.isdecimal() else 0


def library(path: str) -> str:
    """The installed library that an extension module's file belongs to: its first folder below site-packages."""
    for place in ("/site-packages/", "/dist-packages/"):
        if place in path:
            path = path.rpartition(place)[2]
    return path.lstrip("/").partition("/")[0].partition(".")[0]


def native(names: Iterable[str]) -> str:
    """What a guard alone cannot promise of a run that loaded native code, without prefix."""
    known = sorted(names)
    more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    listed = ", ".join(shown(name) for name in known[:MOST_SHOWN])
    return f"note: native code was loaded, whose own input and output no guard sees: {listed}{more}"


def layers(live: Sequence[str]) -> str:
    """Which layers of Linux a run had, and which not, without prefix; "" when it had all, or another run holds it."""
    from agentbox.guard.kernel import LAYERS

    missing = [name for name in LAYERS if name not in live]
    if not missing or not set(live) <= {"guard", *LAYERS}:
        return ""
    return f"layers: {', '.join(live) or 'none'} (without {', '.join(missing)})"


def summary(counts: Mapping[str, int], trace: str) -> str:
    """The last line of a recorded run, without prefix."""
    effects, observations, denials = counts["effect"], counts["observe"], counts["deny"]
    return f"recorded {effects} effects, {observations} observations, {denials} denials -> {shown(trace)}"


def kept(count: int, trace: str) -> str:
    """The line that says where the traces of earlier runs are, without prefix."""
    folder = trace.rpartition("/")[0] + "/traces/" if "/" in trace else "traces/"
    return f"{count} older {'trace is' if count == 1 else 'traces are'} kept in {shown(folder)}"


def shown(text: str, most: int = 200) -> str:
    """Text of the agent's choice as one printable line of at most `most` characters."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= most else text[: most - 3] + "..."
