"""What agentbox costs against the bare command, on the same machine in the same run: the tables of `hatch run bench`.

usage: bench.py [--quick] [guard|kernel|trace ...]; --quick repeats less, a name measures only that part. It never fails
for a figure: it measures, and says what it could not.
"""

from __future__ import annotations

import compileall
import subprocess
import sys
import tempfile
from pathlib import Path

import kernel_layers
from programs import CHILDREN, COMPUTE, MEMORY, READ
from ways import BARE, Table, Way, agentbox, heading, lowest, machine

HERE = Path(__file__).resolve().parent
PEER = "agentbox-runtime==0.3.0"


def compiled() -> bool:
    """Compile agentbox's modules, as an installer does and a checkout in which something was changed may not be: else
    every start-up has the compiler's time in it. Whether that could be done.
    """
    import agentbox
    import agentbox_command

    done = [bool(compileall.compile_dir(place, quiet=2)) for place in agentbox.__path__]
    return all(done) and bool(compileall.compile_file(agentbox_command.__file__, quiet=2))


def peer(folder: Path) -> tuple[Path | None, str]:
    """A throw-away environment with the peer, or why there is none."""
    venv = folder / "peer"
    try:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True, timeout=120)
        install = [venv / "bin" / "pip", "install", "-q", "--disable-pip-version-check", PEER]
        subprocess.run(install, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", b"") or str(error).encode()
        return None, reason.decode(errors="replace").strip().splitlines()[-1]
    return venv / "bin", ""


def guard(folder: Path, times: int) -> None:
    """The interpreter's guard alone, beside what was installed under this name before."""
    policy = f"read: ./data\nexec: {sys.executable}\n"
    ours = agentbox("guard", folder, policy, "--layers", "guard")
    found = [Way(BARE, folder, []), ours]
    binaries, reason = peer(folder)
    if binaries is not None:
        options = ["-p", str(folder / "guard.policy"), "-t", str(folder / "peer.jsonl"), "--"]
        found.append(Way("0.3.0", folder, [str(binaries / "agentbox"), "run", *options]))
    table = Table([way.name for way in found])
    python = [sys.executable, "-c"]
    figures = lowest(found, lambda way: way.seconds(*python, "pass"), times)
    table.more("start-up: python -c pass, ms", figures, 1e-3, 1, "+60")
    figures = lowest(found, lambda way: way.figure(*python, CHILDREN), max(3, times // 5))
    table.more("a further guarded Python process, ms (guard's share)", figures, 1e-3, 1, "+15")
    figures = lowest(found, lambda way: way.figure(*python, COMPUTE), max(3, times // 3))
    table.ratio("pure computation, ms, then ratio", figures, 3, "1.02 x")
    figures = lowest(found, lambda way: way.figure(*python, READ), max(3, times // 3))
    table.more("open + read of a small file, recorded, hashed, us", figures, 1e-6, 1, "+40")
    few, many = (ours.memory(*python, MEMORY.replace("COUNT", str(count))) for count in (100, 20_000))
    table.row("memory of the supervisor, MB, 100 and 20,000 reads", {ours.name: f"{few:.1f}, {many:.1f}"}, "40, flat")
    if reason:
        print(f"\n{PEER} could not be installed: {reason}")


def main() -> int:
    words = sys.argv[1:]
    quick = "--quick" in words
    parts = [word for word in words if word != "--quick"] or ["guard", "kernel", "trace"]
    if unknown := [word for word in parts if word not in ("guard", "kernel", "trace")]:
        print(f"bench: got {unknown[0]!r}, expected guard, kernel, trace or --quick", file=sys.stderr)
        return 2
    times = 5 if quick else 25
    print(f"{machine()}, lowest of {times} or fewer, in turns")
    if not compiled():
        print("agentbox's modules could not be compiled beforehand: its start-up has that time in it")
    with tempfile.TemporaryDirectory(prefix="agentbox-bench-") as scratch:
        for part in ("guard", "kernel"):
            folder = Path(scratch) / part
            (folder / "data").mkdir(parents=True)
            (folder / "data" / "small.txt").write_bytes(b"x" * 200)
            if part == "guard" and part in parts:
                heading("the interpreter's guard alone (--layers guard)")
                guard(folder, times)
            elif part in parts:
                heading("the kernel layers (the default)")
                kernel_layers.measure(folder, times)
    if "trace" not in parts:
        return 0
    heading("the trace")
    rates = HERE / "trace_rates.py"
    return subprocess.run([sys.executable, rates, *(["100000"] if quick else [])], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
