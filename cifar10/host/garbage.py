"""Python's garbage collector, which need not look at modules. Standard library only."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def modules_stay() -> Iterator[None]:
    """Loads modules without a look at garbage, now or later.

    The collector looks for cycles of objects that nobody uses, again and again while objects are
    made. Those of TensorFlow's modules are hundreds of thousands, and they live as long as the
    process.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # What exists now is never looked at again.
        if was_enabled:
            gc.enable()
