"""The DNS stub of a run: answers allowed names with a synthetic address each, and every other name with NXDOMAIN.

It never sends a query anywhere: allowed names are handed to the supervisor's resolver, others are told as denied. Bytes
from the agent are parsed without trust (RFC 1035; EDNS RFC 6891; extended errors RFC 8914).

Contract (implementation follows):
    Synthetic()                      one address of 198.18.0.0/15 for each name
        .address(name) -> str        "" when all are given out
        .name(address) -> str        "" for none; also for ::ffff:198.18.x.y
    DnsStub(synthetic, policy, look_up, told)
        look_up(name, then)          the supervisor's resolver, in a worker; then(addresses | OSError) on the loop thread
        told(name, denial | None, addresses)   one call per new name asked: denial for the trace (op net.resolve), else what it led to
        .attach(sockets, register, forget)     register(fd, call) and forget(fd) are the loop's; sockets as from netns.enter()
        .close()
"""
