"""What a batch gives back, the next one has: without a page fault for each 4 KiB."""

import platform
import subprocess
import sys

import pytest

BATCHES = """
import resource, sys
import torch
from audioaug.dsp.memory import keep_freed

def faults_of_a_batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        kept = [torch.ones(2_000_000) for _ in range(5)]
        del kept
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20

faults_of_a_batch()
before = faults_of_a_batch()
keep_freed()
faults_of_a_batch()
print(before, faults_of_a_batch())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep what they like")
def test_batches_after_the_first_have_the_memory_of_the_one_before():
    done = subprocess.run([sys.executable, "-c", BATCHES], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert after < 100 < 1000 < before  # of 10,000 pages
