"""Workers keep the memory that they have freed."""

import platform
import subprocess
import sys

import pytest

HELD = """
import numpy as np, psutil, sys
from audioaug.train.memory import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = psutil.Process().memory_info().rss
block = np.ones(16_000_000)
del block
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the knobs")
def test_a_freed_block_stays_with_the_process() -> None:
    held = [
        int(subprocess.run([sys.executable, "-c", HELD, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "as it is")
    ]
    assert held[0] > 100e6 > 20e6 > held[1]
