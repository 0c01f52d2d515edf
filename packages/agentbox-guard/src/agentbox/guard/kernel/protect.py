"""Built-in protection: files inside write roots that make others run code, which no program of the run may change
unless a rule names that very file.

Names are compared without letter case, at any depth, whether the file exists or not; nothing is ever created in the
workspace to protect it.

Contract (implementation follows):
    Protection(policy) ; .reason(path) -> str      "" or why `path` (resolved, absolute) may not be written, made, replaced, linked, removed
                         .tree_reason(path) -> str  the same for renaming or removing the folder `path` with what is in it
                         .tuples() -> tuple         the same as plain tuples for the guard's sealed judge (see `protected` below)
    protected(path, tuples) -> str                  sealed-style pure function: no globals; also for the kernel traps
    config_problem(data: bytes) -> str              "" or which key of a git configuration runs a program: .git/config is a `content` file:
                         .is_content(path) -> bool  True for git configuration: may be written as `config.lock`, and is checked when renamed over
                                                    `config` (supervisor reads the lock file through its own descriptor, then renames that)
"""
