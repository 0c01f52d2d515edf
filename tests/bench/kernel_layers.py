"""What the kernel layers cost: start-up, trapped calls of programs without a guard, and a large `git status`, beside
bubblewrap where it is installed.

bubblewrap isolates and records nothing: its column shows what namespaces alone cost. Nothing here is needed by a test.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

from programs import READ, STATUS
from ways import BARE, Table, Way, agentbox, lowest

HERE = Path(__file__).resolve().parent
FILES = 10_000
GUARD, LAYERS, PEER, FLOOR = "guard", "agentbox", "bubblewrap", "floor"


class Listener:
    """A loopback server that accepts and closes, until it is left."""

    def __enter__(self) -> int:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=4096)
        Thread(target=self._accept, daemon=True).start()
        port: int = self._socket.getsockname()[1]
        return port

    def _accept(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return

    def __exit__(self, *error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def acts(folder: Path) -> tuple[list[str], str]:
    """The program that does one kind of act in a loop, and what it is written in: C where there is a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return [sys.executable, "-I", "-S", str(HERE / "acts.py")], "python -I -S: no C compiler was found"
    subprocess.run([compiler, "-O1", "-o", str(folder / "acts"), str(HERE / "acts.c")], check=True)
    return [str(folder / "acts")], "C"


def repository(folder: Path) -> str:
    """The path of `git` when a repository of many files could be made in `folder`, else ""."""
    git = shutil.which("git")
    if git is None:
        return ""
    for number in range(FILES):
        path = folder / f"d{number % 100}" / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
        os.utime(path, (1e9, 1e9))  # older than the index, or git would read every file again
    author = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "files"], ["status", "--porcelain"]):
        subprocess.run([git, *author, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return git


def ways(folder: Path, port: int, program: list[str], git: str) -> list[Way]:
    """Bare, the guard alone, the default layers, and bubblewrap if there is any."""
    true = str(shutil.which("true"))
    policy = f"read: .\nwrite: ./repository\nexec: {sys.executable}, exec: {true}, exec: {program[0]}\n"
    policy += f"net: 127.0.0.1:{port}\n" + (f"exec: {git}\n" if git else "")
    found = [
        Way(BARE, folder, []),
        agentbox(GUARD, folder, policy, "--layers", "guard"),
        agentbox(LAYERS, folder, policy),
    ]
    bwrap = shutil.which("bwrap")
    if bwrap is not None:
        bound = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(folder), str(folder)]
        found.append(Way(PEER, folder, [bwrap, *bound, "--unshare-all", "--die-with-parent", "--"]))
    return found


def measure(folder: Path, times: int) -> None:
    """Print the table."""
    if sys.platform != "linux":
        print("not measured: the kernel layers are Linux's")
        return
    program, language = acts(folder)
    (folder / "repository").mkdir()
    git = repository(folder / "repository")
    with Listener() as port:
        found = ways(folder, port, program, git)
        live = subprocess.run([*found[2].prefix, "true"], cwd=folder, capture_output=True, text=True, check=False)
        if live.returncode:
            print(f"not measured: {live.stderr.strip()}")
            return
        table = Table([*(way.name for way in found), FLOOR])
        start_up(table, found, times)
        trapped(table, found, times, program, port)
        if git:
            native = [way for way in found if way.name != GUARD]
            figures = lowest(native, lambda way: way.figure(sys.executable, "-I", "-c", STATUS), max(3, times // 3))
            table.ratio(f"git status of {FILES:,} files in a run, ms, then ratio", figures, 2, "1.3 x")
        few, many = (found[2].memory(*program, "wait", str(count), "data/small.txt") for count in (100, 50_000))
        table.row("memory of the supervisor, MB, 100 and 50,000 opens", {LAYERS: f"{few:.1f}, {many:.1f}"}, "40, flat")
    print(f"\ncalls in a loop: a program in {language}; floor: the least that any supervisor costs (floor.py)")
    if found[-1].name != PEER:
        print("bubblewrap is not installed (bwrap is not in PATH), so nothing stands beside agentbox")


def start_up(table: Table, found: list[Way], times: int) -> None:
    """Whole runs of programs that do nothing, and what a guarded Python program notices."""
    python = [sys.executable, "-c"]
    figures = lowest(found, lambda way: way.seconds(*python, "pass"), times)
    table.more("start-up: python -c pass, ms", figures, 1e-3, 1, "+30")
    native = [way for way in found if way.name != GUARD]
    figures = lowest(native, lambda way: way.seconds("true"), times)
    table.more("start-up: true, ms", figures, 1e-3, 1, "+25")
    figures = lowest(found, lambda way: way.figure(*python, READ), max(3, times // 3))
    table.more("open + read in a guarded Python, recorded, hashed, us", figures, 1e-6, 1, "+60")


def trapped(table: Table, found: list[Way], times: int, program: list[str], port: int) -> None:
    """Calls of a program without a guard, which the supervisor answers."""
    native = [way for way in found if way.name != GUARD]
    here = [way for way in native if way.name != PEER]  # an empty network leads nowhere there
    few = max(3, times // 5)
    opens = [*native, Way(FLOOR, native[0].folder, [sys.executable, str(HERE / "floor.py")])]
    act = [*program, "open", "5000", "data/small.txt"]
    figures = lowest(opens, lambda way: way.figure(*act), few)
    table.more("open + close, recorded, us", figures, 1e-6, 1, "+20")
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})  # what is started now stays there
    figures = lowest(opens, lambda way: way.figure(*act), few)
    os.sched_setaffinity(0, every)
    table.more("  the same, all on one processor, us", figures, 1e-6, 1, "")
    true = str(shutil.which("true"))
    figures = lowest(native, lambda way: way.figure(*program, "spawn", "100", true), few)
    table.more("spawn of true, recorded, ms", figures, 1e-3, 2, "+0.5")
    figures = lowest(here, lambda way: way.figure(*program, "connect", "200", str(port)), few)
    table.more("connect to 127.0.0.1, recorded, ms", figures, 1e-3, 2, "+1")
