"""The garbage collector, while modules are loaded and afterwards."""

import contextlib
import gc
import weakref

from cifar10.host import garbage


class Node:
    """An object that refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_only_what_is_made_after_the_modules_is_collected():
    try:
        with contextlib.suppress(ImportError), garbage.modules_stay():
            kept = weakref.ref(Node())
            raise ImportError
        lost = weakref.ref(Node())
        gc.collect()
        assert kept() is not None
        assert lost() is None
        assert gc.isenabled()
    finally:
        gc.unfreeze()
