from dataclasses import replace

import pytest

from audioaug.decide.limits import AHEAD, FILES, KEPT, Needs, most_workers
from tests.helpers.planted_reports import CPU

MIB = 2**20
HOST = replace(CPU, open_files=1024, ram_available_bytes=8 * 2**30)


@pytest.mark.parametrize(
    ("needs", "limit", "workers", "words"),
    [
        (Needs(), "", 32, ""),
        (
            Needs(batch_bytes=MIB, shared_free_bytes=64 * MIB),
            "shm_too_small",
            19,
            "1.0 MiB in /dev/shm, where 64.0 MiB",
        ),
        (Needs(batch_bytes=MIB, shared_free_bytes=MIB), "shm_too_small", 0, "Only 0 workers can run"),
        (Needs(batch_bytes=MIB, shared_free_bytes=1024 * MIB), "", 32, ""),
        (Needs(batch_tensors=4, files_open=800), "fd_limit", 11, "800 of the 1024 that are allowed"),
        (Needs(batch_tensors=4, files_open=2000), "fd_limit", 0, "ulimit -n"),
        (Needs(worker_bytes=2**30), "ram_limit", 6, "1.0 GiB in memory"),
        (Needs(unpicklable="`dataset.f` (lambda) does not pickle"), "", 32, ""),  # forked workers need not
    ],
)
def test_how_many_workers_can_run(needs, limit, workers, words) -> None:
    count, found = most_workers(HOST, needs, 32)
    assert count == workers and (found.id if found else "") == limit
    assert words in (found.text if found else "")


def test_unpicklable_datasets_allow_only_forked_workers() -> None:
    needs = Needs(unpicklable="`dataset.f` (lambda) does not pickle", batch_bytes=MIB, shared_free_bytes=MIB)
    count, found = most_workers(replace(HOST, start_method="spawn"), needs, 32)
    assert (count, found.id) == (0, "not_picklable") and "spawn" in found.text and "`dataset.f`" in found.text
    assert found.text.endswith(
        " does not pickle. Forked workers inherit it: call multiprocessing.set_start_method('fork') first."
    )


def test_ranks_share_memory_but_not_open_files() -> None:
    ranks = replace(HOST, local_ranks=2)
    count, found = most_workers(ranks, Needs(batch_bytes=MIB, shared_free_bytes=64 * MIB), 32)
    assert count == 9 and "64.0 MiB are free for 2 ranks." in found.text
    count, found = most_workers(ranks, Needs(worker_bytes=2**30), 32)
    assert count == 3 and "8.0 GiB are free for 2 ranks." in found.text
    assert most_workers(ranks, Needs(batch_tensors=4, files_open=800), 32)[0] == 11


def test_the_tightest_limit_is_named() -> None:
    needs = Needs(MIB, 4, files_open=800, shared_free_bytes=20 * MIB)
    assert most_workers(HOST, needs, 32)[1].id == "shm_too_small"
    assert most_workers(replace(HOST, open_files=840), needs, 32)[1].id == "fd_limit"
    assert (840 - 800 - KEPT) // (FILES + 4 * AHEAD) == most_workers(replace(HOST, open_files=840), needs, 32)[0]
