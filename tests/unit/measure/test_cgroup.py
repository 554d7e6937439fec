"""Limits in planted control group trees like those of real machines."""

from pathlib import Path

import pytest

from audioaug.measure import MemoryLimit, cpu_quota, memory_limit, throttled_seconds

GIB = 1 << 30


def plant(root: Path, membership: str, files: dict[str, str]) -> Path:
    """Write ``/proc/self/cgroup`` and files below ``/sys/fs/cgroup``."""
    for name, text in {"proc/self/cgroup": membership, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n" if text else "")
    return root


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),  # inside a container
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 0.5),  # the parent limits
        ("0::/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "400000 100000"}, 2.0),  # the tightest holds
        ("0::/a/b", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ("0::/a", {"b/cpu.max": "50000 100000", "a/cpu.max": "max 100000"}, None),  # the neighbour's is not ours
        ("0::/not/mounted/here", {"cpu.max": "300000 100000"}, 3.0),  # the path is the host's
        ("0::/../sibling", {"sibling/cpu.max": "100000 100000"}, 1.0),
        ("0::/", {"cpu.max": ""}, None),
        ("0::/", {}, None),
        ("", {}, None),
        ("4:cpu,cpuacct:/d", {"cpu/d/cpu.cfs_quota_us": "250000", "cpu/d/cpu.cfs_period_us": "100000"}, 2.5),
        ("4:cpu,cpuacct:/", {"cpu,cpuacct/cpu.cfs_quota_us": "1", "cpu,cpuacct/cpu.cfs_period_us": "2"}, 0.5),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("4:cpuset:/", {"cpu/cpu.cfs_quota_us": "1", "cpu/cpu.cfs_period_us": "1"}, None),
        ("4:cpu:/\n0::/x", {"unified/x/cpu.max": "100000 50000"}, 2.0),  # both versions together
    ],
)
def test_cpu_quota(tmp_path: Path, membership: str, files: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(plant(tmp_path, membership, files)) == quota


def test_no_proc_at_all(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/a", {"a/memory.max": str(4 * GIB), "a/memory.current": str(GIB)}, MemoryLimit(4 * GIB, 3 * GIB)),
        ("0::/a", {"a/memory.max": "max", "a/memory.current": "1"}, None),
        (  # files that were read can be forgotten
            "0::/",
            {
                "memory.max": str(4 * GIB),
                "memory.current": str(3 * GIB),
                "memory.stat": f"anon 1\ninactive_file {2 * GIB}",
            },
            MemoryLimit(4 * GIB, 3 * GIB),
        ),
        (  # the smaller limit and the fuller group need not be the same
            "0::/a",
            {
                "a/memory.max": str(2 * GIB),
                "a/memory.current": "0",
                "memory.max": str(8 * GIB),
                "memory.current": str(7 * GIB),
            },
            MemoryLimit(2 * GIB, GIB),
        ),
        (
            "9:memory:/a",
            {
                "memory/a/memory.limit_in_bytes": str(GIB),
                "memory/a/memory.usage_in_bytes": str(GIB),
                "memory/a/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 4}",
            },
            MemoryLimit(GIB, GIB // 4),
        ),
    ],
)
def test_memory_limit(tmp_path: Path, membership: str, files: dict[str, str], limit: MemoryLimit | None) -> None:
    assert memory_limit(plant(tmp_path, membership, files)) == limit


@pytest.mark.parametrize(
    ("membership", "files", "seconds"),
    [
        ("0::/a", {"a/cpu.stat": "usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000"}, 2.5),
        ("4:cpu,cpuacct:/d", {"cpu/d/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000"}, 1.5),
        ("0::/a/b", {"a/b/cpu.stat": "throttled_usec 0", "a/cpu.stat": "throttled_usec 1000000"}, 1.0),
        ("0::/", {"cpu.stat": ""}, 0.0),
        ("", {}, 0.0),
    ],
)
def test_throttled_seconds(tmp_path: Path, membership: str, files: dict[str, str], seconds: float) -> None:
    assert throttled_seconds(plant(tmp_path, membership, files)) == seconds
