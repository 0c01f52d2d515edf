"""The namespace layer: own user, network, process and mount namespaces, with a loopback, the resolver's addresses and
nothing else in them.

It never leaves a capability behind, and it never talks to the network itself: the DNS stub and the broker do, outside.

Contract (implementation follows):
    NETNS.probe() -> str
    NETNS.plan(policy, context) -> Plan              uid, gid, resolver addresses, hostname kept
    NETNS.apply(plan) -> None                        = enter(plan), for tables; sockets are then in plan.sockets
    enter(plan) -> list[socket]                      in the launcher child L: unshare, maps, lo up, resolver addresses on lo, UDP+TCP port 53
                                                     bound (TCP listening); returns these sockets, to be handed to the supervisor (SCM_RIGHTS).
                                                     The pid namespace begins with the next fork: call init.run() after it.
    fresh_proc() -> bool                             in pid 1: mounts a /proc of the new pid namespace; False where the machine forbids it
    drop_capabilities() -> None                      bounding, ambient, inheritable, permitted, effective: last step before landlock
    local(address) -> bool                           loopback, or a resolver's address: served inside the namespace (CONTINUE)
"""
