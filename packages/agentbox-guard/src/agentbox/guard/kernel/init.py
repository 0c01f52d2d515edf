"""Process 1 of the run's process namespace and the process that stands for it outside.

L, the launcher child, stays outside of the new namespace as the supervisor's child; P1 is the namespace's pid 1 and
reaps; A is the agent. When L or P1 ends, the kernel ends everything in the namespace. Neither L nor P1 ever decides or
records anything.

Contract (implementation follows):
    run(start: Callable[[], Never], *, in_init: Callable[[], None] = ...) -> Never
        Called in L after netns.enter(). Forks P1 (PDEATHSIG, not dumpable, in_init() called there: fresh_proc), which forks A; A calls start()
        (drop_capabilities, landlock, seccomp, exec; it must not return). L mirrors A's end exactly (same status, or same signal),
        so `waitpid(L)` in the supervisor needs no change. All three stay in the caller's session and process group.
        Signals for the agent: A's pid outside is not L's. The supervisor learns it as SCM_CREDENTIALS of what A sends before exec
        (the seccomp listener's message) and signals A itself; L and P1 take no notice of signals but SIGKILL and SIGCONT.
    stopped(child: int) -> int       supervisor, on SIGCHLD: the job-control signal that stopped the agent (L stops too), or 0
    suspend(child: int, agent: int) -> None   stops the supervisor as the agent was stopped; when it is continued, continues L and the agent
"""
