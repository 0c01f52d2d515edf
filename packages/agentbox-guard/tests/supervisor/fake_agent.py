"""A guarded process without a guard: speaks docs/spec/channel.md by hand, to test the supervisor by itself."""

import json
import os
import signal
import socket
import sys
import threading


def rest():
    """Wait for a signal to end this process, by its handler or without one; none is missed (signal(7))."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    while True:
        os.read(reader, 1)


class Link:
    """One connection to the supervisor."""

    def __init__(self, role="guard", resume=False, hello=True):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.environ["AGENTBOX_CHANNEL"])
        self.reader = self.sock.makefile("rb")
        self.welcome = None
        if hello:
            line = {"t": "hello", "v": 1, "role": role, "runtime": "fake", "version": "1"}
            line |= {"resume": True} if resume else {"ppid": os.getppid(), "executable": sys.executable}
            self.send(line)
            self.welcome = self.receive()

    def send(self, line):
        self.raw(json.dumps(line).encode() + b"\n")

    def raw(self, data):
        self.sock.sendall(data)

    def receive(self):
        line = self.reader.readline()
        if not line:
            os._exit(70)
        return json.loads(line)

    def armed(self):
        self.send({"t": "armed"})
        return self

    def event(self, op, **args):
        self.send({"t": "event", "op": op, "args": args, "thread": threading.get_native_id()})

    def deny(self, op, key, target, **args):
        line = {"t": "deny", "op": op, "args": args, "key": key, "target": target, "reason": "no rule", "rule": None}
        self.send(line | {"fix": f"{key}: {target}", "enforced": True, "thread": threading.get_native_id()})

    def ask(self, op, **args):
        self.send(
            {"t": "ask", "id": 1, "op": op, "args": args, "thread": threading.get_native_id(), "site": "agent.py:1"}
        )
        return self.receive()

    def call(self, op, **args):
        self.send({"t": "call", "id": 2, "op": op, "args": args, "thread": threading.get_native_id()})
        return self.receive()
