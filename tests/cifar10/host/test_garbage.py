"""The garbage collector, while modules are loaded and afterwards."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from cifar10.host import garbage


class Node:
    """An object that refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.collect()


def test_what_exists_at_the_end_is_never_looked_at_again():
    with garbage.modules_stay():
        lost = weakref.ref(Node())
    gc.collect()
    assert lost() is not None
    gc.unfreeze()
    gc.collect()
    assert lost() is None


def test_what_is_made_later_is_collected():
    with garbage.modules_stay():
        pass
    lost = weakref.ref(Node())
    gc.collect()
    assert lost() is None


def test_an_error_while_modules_are_loaded_leaves_the_collector_on():
    with pytest.raises(ImportError), garbage.modules_stay():
        raise ImportError
    assert gc.isenabled()
