"""The planted faults: each fits its file, so that `make mutants` can plant it."""

from mutants import read_faults


def test_every_fault_fits_its_file():
    assert len(read_faults()) > 200
