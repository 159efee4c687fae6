"""The command line keeps freed memory: batches after batches cause no page faults."""

import os
import subprocess
import sys

import pytest

BATCHES = """
import resource, sys
import numpy as np
from anchorlens.training.child_processes import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
def batch():
    held = [np.ones(3 * 2**17) for _ in range(8)]  # 8 blocks of 3 MiB
batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 10 * 8 * 3 * 2**20 // os.sysconf("SC_PAGE_SIZE")  # that ten batches touch


def faults(how, **environment):
    names = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}
    env = {name: value for name, value in os.environ.items() if name not in names} | environment
    done = subprocess.run([sys.executable, "-c", BATCHES, how], env=env, capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's limits")
def test_freed_memory_is_kept_unless_the_environment_says_otherwise():
    assert faults("kept") < PAGES / 100
    assert faults("as glibc comes") > PAGES / 2
    assert faults("kept", MALLOC_TRIM_THRESHOLD_="131072") > PAGES / 2
