"""CPUs that a process may keep busy, read from files as kernels and containers write them."""

import os
from pathlib import Path

import pytest

from radixserve import cpus
from radixserve.cpus import cgroup_cpus, usable_cpus

V2 = "30 23 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "32 31 0:29 {root} {point} rw,relatime - cgroup cgroup rw,cpu,cpuacct"
OTHER = "24 23 0:5 / /dev rw - devtmpfs devtmpfs rw,size=4096k"


class Machine:
    """A /proc/self and control groups, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.point = folder / "sys fs" / "cgroup"
        self.proc.mkdir()
        self.mounts = [OTHER]

    def mount(self, form: str, root: str = "/", at: str = "") -> None:
        point = str(self.point / at).replace(" ", "\\040")
        self.mounts.append(form.format(root=root, point=point))
        (self.proc / "mountinfo").write_text("\n".join(self.mounts) + "\n")

    def group(self, folder: str, **files: str) -> None:
        path = self.point / folder
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (path / name.replace("__", ".")).write_text(text + "\n")

    def be_in(self, *lines: str) -> None:
        (self.proc / "cgroup").write_text("\n".join(lines) + "\n")

    @property
    def quota(self) -> float | None:
        return cgroup_cpus(self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("text", "quota"), [("200000 100000", 2.0), ("50000 100000", 0.5), ("max 100000", None), ("", None), ("0 0", None)]
)
def test_a_cpu_quota_of_version_2(machine: Machine, text: str, quota: float | None) -> None:
    machine.mount(V2)
    machine.group("system.slice/docker-1.scope", cpu__max=text)
    machine.be_in("0::/system.slice/docker-1.scope")
    assert machine.quota == quota


@pytest.mark.parametrize(("microseconds", "quota"), [("150000", 1.5), ("-1", None), ("x", None)])
def test_a_cpu_quota_of_version_1(machine: Machine, microseconds: str, quota: float | None) -> None:
    machine.mount(V1, at="cpu,cpuacct")
    machine.group("cpu,cpuacct/docker/1", cpu__cfs_quota_us=microseconds, cpu__cfs_period_us="100000")
    machine.be_in("12:memory:/docker/1", "4:cpu,cpuacct:/docker/1", "1:name=systemd:/docker/1")
    assert machine.quota == quota


@pytest.mark.parametrize(("outer", "middle", "inner", "quota"), [("max", "200000", "max", 2.0), ("300000", "max", "400000", 3.0)])
def test_the_smallest_quota_of_nested_groups_counts(machine: Machine, outer: str, middle: str, inner: str, quota: float) -> None:
    machine.mount(V2)
    for folder, text in (("", "max"), ("a", outer), ("a/b", middle), ("a/b/c", inner)):
        machine.group(folder, cpu__max=f"{text} 100000")
    machine.be_in("0::/a/b/c")
    assert machine.quota == quota


@pytest.mark.parametrize(("root", "group"), [("/", "/"), ("/docker/1", "/docker/1"), ("/docker/1", "/"), ("/", "/../../pod/1")])
def test_in_a_container_the_mount_is_its_own_group(machine: Machine, root: str, group: str) -> None:
    machine.mount(V2, root)
    machine.group("", cpu__max="200000 100000")
    machine.be_in(f"0::{group}")
    assert machine.quota == 2.0


def test_below_the_group_of_a_container_the_quotas_of_both_count(machine: Machine) -> None:
    machine.mount(V2, "/docker/1")
    machine.group("", cpu__max="200000 100000")
    machine.group("job", cpu__max="100000 100000")
    machine.be_in("0::/docker/1/job")
    assert machine.quota == 1.0


def test_a_machine_with_both_versions(machine: Machine) -> None:
    machine.mount(V1, at="cpu")
    machine.mount(V2, at="unified")
    machine.group("cpu/a", cpu__cfs_quota_us="250000", cpu__cfs_period_us="50000")
    machine.group("unified/a")
    machine.be_in("1:cpu,cpuacct:/a", "0::/a")
    assert machine.quota == 5.0


def test_no_quota_where_there_are_no_control_groups(machine: Machine) -> None:
    assert machine.quota is None


@pytest.mark.parametrize("text", ["x", "x - y", "1:2", ":", "\n\n"])
def test_no_quota_where_proc_is_not_linux_s(machine: Machine, text: str) -> None:
    machine.mount(V2)
    (machine.proc / "mountinfo").write_text(text)
    machine.be_in(text)
    assert machine.quota is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
@pytest.mark.parametrize(
    ("mask", "quota", "expected"),
    [(64, 2.0, 2), (64, 2.9, 2), (64, 0.5, 1), (1, 8.0, 1), (64, None, 64)],
)
def test_threads_are_the_smaller_of_affinity_and_quota(
    monkeypatch: pytest.MonkeyPatch, mask: int, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda pid: set(range(mask)))
    monkeypatch.setattr(cpus, "cgroup_cpus", lambda: quota)
    assert usable_cpus() == expected
