"""`net.connect`, `net.send`, `net.bind`: one address and port, or one socket path, against the `net:` rules.

An address is allowed by a rule that names it, or because an allowed name led to it in this run; a name alone never
opens an address.
"""

from __future__ import annotations

import errno

from agentbox.guard.decisions._base import Desk, Verdict, denial_of, member
from agentbox.guard.names import literal
from agentbox.guard.paths import resolve, show_path, within
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ANY = {"inet": "0.0.0.0", "inet6": "::"}
_IPV6_LOOPBACK = "::1"
"""In a network of the run's own, nobody outside reaches who is bound to it, and it takes no IPv4 (ipv6(7)). Programs
bind a socket to it to learn whether there is IPv6, also where a rule names a server on 127.0.0.1.
"""


class Endpoint:
    """Args: `family` (`inet` or `inet6`), `address` and `port`, and `datagram` (true) where such a socket is bound; or
    `path` for a unix socket: an abstract name with `@` in front, or NUL when it is known to be the machine's.
    """

    def decide(self, op: str, args: dict[str, Any], pid: int, desk: Desk) -> Verdict:
        if "path" in args:
            return _unix(op, member(args, "path", str, op), pid, desk)
        family = member(args, "family", str, op)
        host, port = member(args, "address", str, op), member(args, "port", int, op)
        if family not in _ANY:
            verdict = Verdict({"family": family})
            verdict.denial = Denial("net", f"socket family {family}", "only TCP, UDP and unix sockets can be allowed")
            return verdict
        return _inet(op, host or _ANY[family], port, pid, desk, datagram=args.get("datagram") is True)

    def complete(self, verdict: Verdict, pid: int, desk: Desk) -> None:
        """Nothing takes time here."""


DECIDER = Endpoint()


def _inet(op: str, host: str, port: int, pid: int, desk: Desk, *, datagram: bool) -> Verdict:
    address = literal(host)
    verdict = Verdict({"host": address or host, "address": address, "port": port})
    if desk.wall is not None and address:
        decided = desk.wall.inside(op, address, port, pid, datagram=datagram)
        if decided is not None:
            verdict.denial, verdict.args["host"] = decided
            verdict.later = True
            return verdict
    if op == "net.bind" and address and (desk.own_loopback or (desk.own_network and address == _IPV6_LOOPBACK)):
        return verdict
    decision = desk.policy.decide("net", address or host, port)
    if not address:
        denial = denial_of(decision, "net")
        verdict.denial = Denial(
            "net", denial.target, "it was not resolved, and only an address can be decided", fix=denial.fix
        )
    elif not decision.allowed:
        name = "" if op == "net.bind" else desk.names.behind(address, port)
        if name:
            verdict.args["host"] = name
        else:
            verdict.denial = denial_of(decision, "net")
    return verdict


def _unix(op: str, path: str, pid: int, desk: Desk) -> Verdict:
    if path[:1] in ("", "\0", "@"):
        real = "@" + path[1:]
    else:
        try:
            real = resolve(path, desk.cwd, pid)
        except OSError as error:
            verdict = Verdict({"path": path})
            verdict.missing = error.errno or errno.ELOOP
            return verdict
    verdict = Verdict({"path": show_path(real, desk.private)})
    if path[:1] == "@" and desk.wall is not None and desk.wall.own_network:
        pass  # in a network namespace of the run's own: the wall decides on what is not in there (unix(7))
    elif real == desk.channel and op == "net.connect":
        verdict.quiet = True
    elif op == "net.bind" and within(real, desk.hidden):
        verdict.denial = Denial("write", real, "it is agentbox's own record of this run")
    elif op == "net.bind" and desk.policy.is_writable(real):
        pass  # a socket's name is a file like others: the write rule allows making it, a net: rule connecting to it
    elif not within(real, list(desk.private.values())):
        decision = desk.policy.decide("net", "unix:" + real)
        if not decision.allowed:
            verdict.denial = denial_of(decision, "net")
    return verdict
