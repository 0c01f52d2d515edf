"""`net.resolve`: a name is looked up only when a rule allows it, and its answer is pinned for the run.

A refused name causes no query at all; an answer never leads the agent to addresses that only a rule of their own may
open.
"""

from __future__ import annotations

from agentbox.guard.decisions._base import Desk, Verdict, astray, denial_of, member
from agentbox.guard.names import key, literal
from agentbox.policy.address import is_localhost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_LOOPBACK = (("127.0.0.1", "inet"), ("::1", "inet6"))


class Resolve:
    """Args: `host`, `port` (0: none), `family` (`any`, `inet`, `inet6`). Value: `addresses`; empty when there is no
    such name.
    """

    def decide(self, op: str, args: dict[str, Any], pid: int, desk: Desk) -> Verdict:
        host = member(args, "host", str, op)
        port = member(args, "port", int, op)
        family = member(args, "family", str, op)
        address = literal(host)
        if address:
            verdict = Verdict({"host": host, "addresses": [address]})
            verdict.value = {"addresses": [address]}
            verdict.quiet = True  # no query is made, and the connect that may follow is decided for itself
            return verdict
        if desk.own_loopback and is_localhost(key(host)):
            # RFC 6761: never asked of anybody; who may be reached there is decided at the connect.
            found = [one for one, kind in _LOOPBACK if family in ("any", kind)]
            verdict = Verdict({"host": host, "addresses": found})
            verdict.value = {"addresses": found}
            verdict.quiet = True
            return verdict
        verdict = Verdict({"host": host, "_port": port or None, "_family": family})
        verdict.slow = True
        decision = desk.policy.decide("net", host, port or None)
        if not decision.allowed:
            verdict.denial = denial_of(decision, "net")
        return verdict

    def complete(self, verdict: Verdict, pid: int, desk: Desk) -> None:
        host, port, family = (verdict.args[name] for name in ("host", "_port", "_family"))
        try:
            addresses = desk.names.look_up(host)
        except OSError:
            addresses = ()
        # A refusal that is only noted (mode observe) still gets its answer.
        usable = list(addresses) if verdict.denial else desk.names.usable(host, port, addresses)
        if addresses and not usable:
            verdict.args["addresses"] = list(addresses)
            verdict.denial = astray(desk.policy, host, port, addresses[0])
            return
        found = [address for address in usable if family in ("any", "inet6" if ":" in address else "inet")]
        verdict.args["addresses"] = found
        verdict.value = {"addresses": found}


DECIDER = Resolve()
