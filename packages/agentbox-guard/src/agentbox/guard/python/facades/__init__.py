"""Stand-ins for C functions, which make calls plain (one path, exact types) before the hook judges, and their tables.

Where an operation raises no audit event the stand-in has the hook judge and do it (events/performed.py). A hostile
program may still find a way around; the kernel layers contain. Nothing here trusts the agent's own modules.
"""

MODULES = ("_plain", "environment", "files", "process", "network", "natives")
"""In the order in which the bootstrap executes them."""

FACADES = (
    ("posix", "open", "os_open"),
    ("posix", "listdir", "os_listdir"),
    ("posix", "scandir", "os_scandir"),
    ("posix", "mkfifo", "os_mkfifo"),
    ("posix", "mknod", "os_mknod"),
    ("posix", "chroot", "os_chroot"),
    ("posix", "unshare", "os_unshare"),
    ("posix", "setns", "os_setns"),
    ("posix", "putenv", "os_putenv"),
    ("posix", "unsetenv", "os_unsetenv"),
    ("posix", "system", "os_system"),
    ("posix", "execv", "os_execv"),
    ("posix", "execve", "os_execve"),
    ("posix", "posix_spawn", "os_posix_spawn"),
    ("posix", "posix_spawnp", "os_posix_spawnp"),
    ("_posixsubprocess", "fork_exec", "fork_exec"),
    ("_imp", "create_builtin", "create_builtin"),
    ("_signal", "pidfd_send_signal", "pidfd_send_signal"),
    ("sys", "activate_stack_trampoline", "activate_stack_trampoline"),
    ("_socket", "getaddrinfo", "getaddrinfo"),
    ("_socket", "gethostbyname", "gethostbyname"),
    ("_socket", "gethostbyname_ex", "gethostbyname_ex"),
    ("_socket", "gethostbyaddr", "gethostbyaddr"),
    ("_socket", "getnameinfo", "getnameinfo"),
    ("_socket.socket", "connect", "socket_connect"),
    ("_socket.socket", "connect_ex", "socket_connect_ex"),
    ("_socket.socket", "bind", "socket_bind"),
    ("_socket.socket", "sendto", "socket_sendto"),
    ("_socket.socket", "sendmsg", "socket_sendmsg"),
    ("_socket.socket", "listen", "socket_listen"),
)
"""(module or type, name there, the function of this folder that takes its place); what this Python lacks is skipped.

Functions are named here, not held: they live in the bootstrap's private namespace only.
"""

ALONE = (
    ("_imp", "create_dynamic", "create_dynamic"),
    ("_imp", "exec_dynamic", "exec_dynamic"),
    ("_imp", "exec_builtin", "exec_builtin"),
    ("posix", "setpriority", "setpriority"),
    ("posix", "sched_setaffinity", "sched_setaffinity"),
    ("posix", "sched_setparam", "sched_setparam"),
    ("posix", "sched_setscheduler", "sched_setscheduler"),
    ("posix", "getgrouplist", "getgrouplist"),
    ("time", "clock_settime", "clock_settime"),
    ("time", "clock_settime_ns", "clock_settime_ns"),
    ("pwd", "getpwuid", "getpwuid"),
    ("pwd", "getpwnam", "getpwnam"),
    ("pwd", "getpwall", "getpwall"),
    ("grp", "getgrgid", "getgrgid"),
    ("grp", "getgrnam", "getgrnam"),
    ("grp", "getgrall", "getgrall"),
    ("_locale", "bindtextdomain", "bindtextdomain"),
    ("_posixshmem", "shm_open", "shm_open"),
    ("_posixshmem", "shm_unlink", "shm_unlink"),
    ("_multiprocessing", "sem_unlink", "semaphore_unlink"),
    ("_multiprocessing.SemLock", "__new__", "semaphore_new"),
    ("_multiprocessing.SemLock", "_rebuild", "semaphore_rebuild"),
    ("_ssl", "_test_decode_cert", "decode_cert"),
    ("_ssl._SSLContext", "load_cert_chain", "load_cert_chain"),
    ("_ssl._SSLContext", "load_verify_locations", "load_verify_locations"),
)
"""The same, for a run that the guard holds alone: modules that are loaded later get them then (events/natives.py)."""
