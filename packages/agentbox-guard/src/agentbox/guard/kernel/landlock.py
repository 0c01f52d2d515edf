"""The Landlock layer: what trees the run's programs can open, change and execute at all, whoever asks the kernel for it.

It is the outer wall and wider than the policy where Landlock cannot say more (globs, single names that do not exist
yet): the seccomp layer decides exactly, this one holds what slips past it. It never allows what no rule, system tree or
private folder covers.

Contract (implementation follows):
    LANDLOCK.probe() -> str                          "" or what is missing; tried in a forked child
    LANDLOCK.plan(policy, context) -> Plan           pure; context is the welcome message; Plan.paths: ((path, access bits), ...)
    LANDLOCK.apply(plan) -> None                     in the child, after the namespaces (no mount after it); sets no_new_privs
    plan(policy, context, abi=N, netns=bool) -> Plan as above for an older ABI
    Plan.covers(access, path) -> bool                True where Landlock allows it: "read", "write", "exec" (for CONTINUE)
"""
