"""How many CPUs this process may keep busy: by its affinity mask, and by the quotas of its control groups.

A container's limit, such as `docker run --cpus 2`, is a quota: all CPUs stay in the mask, and a process with a thread on each is
stopped most of the time. Files: cgroups(7), proc(5), and the kernel's cgroup-v2.rst (cpu.max) and sched-bwc.rst (cpu.cfs_quota_us).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def usable_cpus() -> int:
    """Whole CPUs, at least 1. A part of a CPU that a quota leaves over is for the process's other work."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpus()
    return allowed if quota is None else max(min(allowed, int(quota)), 1)


def cgroup_cpus(proc: Path = Path("/proc/self")) -> float | None:
    """The smallest quota of this process's control groups and of those around them, in CPUs; None where there is none.

    `proc`: the process's folder in /proc.
    """
    try:
        quotas = [quota for folder in _folders(proc) if (quota := _quota(folder)) is not None]
    except ValueError:  # a /proc that isn't written as Linux writes it
        return None
    return min(quotas, default=None)


def _folders(proc: Path) -> Iterator[Path]:
    """The folders of the control groups that may have a quota, each with those around it, as far as they are mounted."""
    mounts = [_Mount(line) for line in _lines(proc / "mountinfo")]
    for line in _lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        for mount in mounts:
            unified = not controllers and mount.kind == "cgroup2"
            if unified or (mount.kind == "cgroup" and "cpu" in controllers.split(",") and "cpu" in mount.options):
                yield from mount.folders(path)


class _Mount:
    """A line of mountinfo: ID PARENT DEVICE ROOT POINT OPTIONS TAGS... - KIND SOURCE OPTIONS."""

    def __init__(self, line: str) -> None:
        place, _, system = line.partition(" - ")
        root, point = place.split()[3:5]
        self.kind, _, options = system.split(" ", 2)
        self.options = options.split(",")
        self._root, self._point = _unescape(root), Path(_unescape(point))

    def folders(self, group: str) -> Iterator[Path]:
        """Those of a group and of the groups around it. One that is not below the mount's root is the root, as in a container."""
        path, root = PurePosixPath(group), PurePosixPath(self._root)
        inner = path.relative_to(root) if path.is_relative_to(root) and ".." not in path.parts else PurePosixPath()
        yield from (self._point / folder for folder in (inner, *inner.parents))


def _quota(folder: Path) -> float | None:
    """In CPUs; None where there is none, or it can't be read."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number
        return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _unescape(text: str) -> str:
    """A path of mountinfo, where a space is \\040."""
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), text)
