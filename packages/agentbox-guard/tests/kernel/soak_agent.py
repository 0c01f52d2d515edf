"""The agent of a soak: in two rounds, many processes at once open, write, start programs, connect, and try a secret.

It checks what it gets itself, and waits for a line between the rounds, so that somebody can look at the supervisor.
usage: soak_agent.py FOLDER PORT WORKERS OPENS EXECS CONNECTS (of each worker)
"""

import _socket
import os
import sys

FILES = 4
"""Files that each worker has."""
WRITE_EVERY, SECRET_EVERY = 20, 40
"""Every so many opens there is a write more, and an attempt on the secret."""
WARM = 10
"""The first round is one part in so many of the whole."""
ROUNDS = 2


def sizes(round_, opens, execs, connects):
    """How many opens, execs and connects a worker does in a round; both rounds together are all of them."""
    first = [-(-number // WARM) for number in (opens, execs, connects)]
    return first if round_ == 0 else [all_ - part for all_, part in zip((opens, execs, connects), first, strict=True)]


def work(name, folder, port, opens, execs, connects):
    own = f"{folder}/{name.split('.')[1]}"
    for number in range(max(opens, execs, connects)):
        if number < opens:
            fd = os.open(f"{own}/{number % FILES}", os.O_RDONLY)
            assert os.read(fd, 99) == b"content\n"
            os.close(fd)
            if number % WRITE_EVERY == 0:
                fd = os.open(f"{own}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.write(fd, b".")
                os.close(fd)
            if number % SECRET_EVERY == 0:
                try:
                    os.open(f"{folder}/../secret", os.O_RDONLY)
                except PermissionError:
                    pass
                else:
                    raise AssertionError("the secret was opened")
        if number < execs:
            started = os.posix_spawn("/bin/true", ["true", f"{name}.{number}"], {})
            assert os.waitpid(started, 0)[1] == 0
        if number < connects:
            one = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            one.connect(("127.0.0.1", port))
            one.sendall(f"{name}.{number}\n".encode())
            assert one.recv(1) == b"!"
            one.close()


def main():
    folder, *numbers = sys.argv[1:]
    port, workers, *each = map(int, numbers)
    for round_ in range(ROUNDS):
        children = []
        for number in range(workers):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    work(f"{round_}.{number}", folder, port, *sizes(round_, *each))
                    status = 0
                except BaseException as error:
                    os.write(2, f"worker {round_}.{number}: {error!r}\n".encode())
                finally:
                    os._exit(status)
            children.append(pid)
        failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in children)
        os.write(1, b"%d failed\n" % failed)
        os.read(0, 1)


if __name__ == "__main__":
    main()
