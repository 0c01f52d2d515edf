"""What acts.c does, for machines without a C compiler: its loop takes longer, in every column alike.

usage: acts.py open COUNT FILE | spawn COUNT PROGRAM | connect COUNT PORT | wait COUNT FILE
"""

import _socket
import os
import sys
import time


def do_open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def do_spawn(path: str) -> None:
    if os.waitpid(os.posix_spawn(path, [path], {}), 0)[1]:
        raise SystemExit(f"{path}: failed")


def do_connect(port: str) -> None:
    one = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    one.connect(("127.0.0.1", int(port)))
    one.close()


def main() -> None:
    name, number, what = sys.argv[1:]
    act = {"open": do_open, "wait": do_open, "spawn": do_spawn, "connect": do_connect}[name]
    count, best = int(number), 1e9
    for _ in range(1 if name == "wait" else 5):
        start = time.perf_counter()
        for _ in range(count):
            act(what)
        best = min(best, (time.perf_counter() - start) / count)
    if name == "wait":
        print("ready", flush=True)
        sys.stdin.readline()
    print(f"figure {best:.9f}")


main()
