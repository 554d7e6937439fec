"""The numbers of a batch are the same tensors, whether they are packed or not, and wherever they were packed."""

import pickle
import weakref

import numpy as np
import pytest
import torch

from audioaug.engine.numbers import Numbers

CPU = torch.device("cpu")


@pytest.fixture(params=[0, 1, 2, 5])
def added(request):
    """Return numbers of that many floats, and what was added, each with its span."""
    numbers, rng = Numbers(), np.random.default_rng(1)
    given = [
        ("ints", np.arange(3)),
        ("floats", rng.normal(size=request.param)),
        ("ints", np.array([7.0, 2.0**52])),  # as whole numbers are drawn
        ("floats", rng.normal(size=(4, 2))[:, 0]),  # a column
    ]
    return numbers, {numbers.add(values, buffer): values for buffer, values in given}


def check(view, given):
    for (buffer, start, stop), values in given.items():
        tensor = view((buffer, start, stop))
        assert tensor.dtype == (torch.int64 if buffer == "ints" else torch.float32) and len(tensor) == stop - start
        assert np.array_equal(tensor.numpy(), values.astype(tensor.numpy().dtype))


def test_arrays_packed_numbers_and_those_of_another_process_are_equal(added):
    numbers, given = added
    check(numbers.on(CPU), given)
    copy = pickle.loads(pickle.dumps(numbers))
    check(numbers.on(CPU), given)
    check(copy.on(CPU), given)
    assert torch.equal(copy.pack(), numbers.pack())


def test_they_are_packed_once_and_then_lie_in_one_tensor(added):
    numbers, given = added
    packed = numbers.pack()
    assert numbers.pack() is packed and packed.dtype == torch.int64
    of_storage = {numbers.on(CPU)(span).untyped_storage().data_ptr() for span in given}
    assert of_storage == {packed.untyped_storage().data_ptr()}


def test_what_is_added_is_not_changed_through_its_tensor(added):
    numbers, given = added
    before = [values.copy() for values in given.values()]
    for span in given:
        numbers.on(CPU)(span).zero_()
    assert all(map(np.array_equal, before, given.values()))


def test_packing_frees_the_arrays_but_not_those_in_use():
    numbers, values = Numbers(), np.arange(5)
    freed = weakref.ref(values)
    span = numbers.add(values, "ints")
    del values
    view = numbers.on(CPU)
    numbers.pack()
    assert view(span).tolist() == [0, 1, 2, 3, 4]
    del view
    assert freed() is None
