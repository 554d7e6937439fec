"""Memory that a batch has freed is there for the next one."""

import os
import platform
import subprocess
import sys

import pytest

HELD = """
import numpy as np, psutil, sys
from audioaug.engine.memory import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = psutil.Process().memory_info().rss
block = np.ones(16_000_000)
del block
print(psutil.Process().memory_info().rss - before)
"""

FAULTS = """
import resource, torch
from audioaug.engine.memory import keep_some_freed_memory

def faults_of_a_batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        batches = [torch.ones(2_000_000) for _ in range(5)]
        del batches
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20

keep_some_freed_memory()
faults_of_a_batch()
print(faults_of_a_batch())
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep what they like")


def printed(code: str, *arguments: str, **environment: str) -> float:
    # With an empty cache folder, imports ask for so much memory that glibc keeps some by itself.
    known = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    command = [sys.executable, "-c", code, *arguments]
    return float(subprocess.check_output(command, text=True, env=known | environment))


def test_a_freed_block_stays_with_a_worker() -> None:
    assert printed(HELD, "keep") > 100e6 > 20e6 > printed(HELD, "as it is")


def test_next_batch_reuses_the_pages_of_the_previous_one() -> None:
    assert printed(FAULTS) < 100  # of 10,000


def test_what_users_have_set_stays() -> None:
    assert printed(FAULTS, MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 1000
