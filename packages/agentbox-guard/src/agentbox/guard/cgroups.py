"""Where a program reads how much memory and processor it may use: the files of its control group and of those above it.

Runtimes size their heaps and thread pools by these at every start (libuv, the Java virtual machine, Go, Rust). No other
file of a group is among them: others list its processes. Sources: cgroups(7); what the Java virtual machine opens at
its start, cgroupV1Subsystem_linux.cpp and cgroupV2Subsystem_linux.cpp of OpenJDK.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNT = "/sys/fs/cgroup"
_UNIFIED = (
    "cpu.max", "cpu.weight", "cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective",
    "memory.current", "memory.high", "memory.max", "memory.swap.max", "pids.max",
)  # fmt: skip
_LEGACY = {
    "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"),
    "cpuset": ("cpuset.cpus", "cpuset.effective_cpus", "cpuset.effective_mems", "cpuset.mems"),
    "memory": (
        *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.stat"),
        *("memory.swappiness", "memory.usage_in_bytes", "memory.use_hierarchy"),
    ),
    "pids": ("pids.max",),
}
"""Files of version 1, by controller; each controller may have a hierarchy of its own. The limit of the groups above
stands in memory.stat.
"""


def limit_files(text: str) -> list[str]:
    """The files that tell limits, there or not, for a process whose /proc/PID/cgroup is `text`."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        for folder, names in _places(controllers):
            for above in _upwards(group):
                found.update(dict.fromkeys(f"{folder}{above}/{name}" for name in names))
    return list(found)


def own_limit_files() -> list[str]:
    """The same for this process and what it starts; nothing where there are no control groups."""
    try:
        with open("/proc/self/cgroup", "rb") as file:
            return limit_files(file.read().decode("utf-8", "surrogateescape"))
    except OSError:
        return []


def _places(controllers: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not controllers:  # the unified hierarchy, alone or beside the others
        yield _MOUNT, _UNIFIED
        yield f"{_MOUNT}/unified", _UNIFIED
    for name in controllers.split(","):
        if name in _LEGACY:
            yield f"{_MOUNT}/{name}", _LEGACY[name]
            if controllers != name:
                yield f"{_MOUNT}/{controllers}", _LEGACY[name]


def _upwards(group: str) -> Iterator[str]:
    """A group and all above it, as what follows the folder of the hierarchy: "" is its root."""
    if not group.startswith("/") or ".." in group.split("/"):  # the latter: outside of an own namespace of groups
        group = ""
    while group.rstrip("/"):
        yield group.rstrip("/")
        group = group.rstrip("/").rpartition("/")[0]
    yield ""
