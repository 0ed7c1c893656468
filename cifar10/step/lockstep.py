"""Builds towers in parallel, so that a layer can use the output of the same layer in other towers.

Graph-building code builds a tower from its first layer to its last. Where a layer needs the mean of
a tensor over all towers, all towers must have been built up to that layer. Here each tower is built
in its own thread. Exactly one thread runs at a time, in a fixed order, so that the graph is the
same in every run. (`MirroredStrategy` works in the same way.)
"""

import threading
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf


class Lockstep:
    """Runs `build(index)` for each tower in turn, switching at every `cross_tower_mean`.

    Args:
      num_towers: the number of towers to build.
    """

    def __init__(self, num_towers: int) -> None:
        self._num_towers = num_towers
        self._turns = [threading.Semaphore(0) for _ in range(num_towers)]
        self._deposits: list[tf.Tensor] = []
        self._merged: Optional[tf.Tensor] = None
        self._error: Optional[BaseException] = None
        self._current = threading.local()

    def run(self, build: Callable[[int], Any]) -> list[Any]:
        """Returns [build(0), build(1), ...]; raises the first exception of a `build`."""
        graph = tf.get_default_graph()
        # From now on each thread has its own name, device and control-dependency scopes.
        graph.switch_to_thread_local()
        scope = tf.get_variable_scope()
        results: list[Any] = [None] * self._num_towers

        def work(index: int) -> None:
            self._turns[index].acquire()
            self._current.index = index
            try:
                if self._error is None:
                    with graph.as_default(), tf.variable_scope(scope, auxiliary_name_scope=False):
                        results[index] = build(index)
            except BaseException as error:  # Handed to the caller below.
                self._error = self._error or error
            finally:
                self._next(index)

        threads = [
            threading.Thread(target=work, args=(index,), daemon=True)
            for index in range(self._num_towers)
        ]
        for thread in threads:
            thread.start()
        self._turns[0].release()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return results

    def cross_tower_mean(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the mean over all towers of the tensors passed to the corresponding calls.

        The n-th calls of the towers correspond to each other.

        Args:
          tensor: this tower's tensor, of the same shape in all towers; the mean has that shape too.

        Raises:
          RuntimeError: the construction of another tower failed.
        """
        index = self._current.index
        self._deposits.append(tensor)
        if len(self._deposits) == self._num_towers:
            self._merged = tf.add_n(self._deposits) / self._num_towers
            self._deposits = []
        self._next(index)
        self._turns[index].acquire()
        if self._error is not None:
            raise RuntimeError("another tower failed while it was built")
        return self._merged

    def _next(self, index: int) -> None:
        self._turns[(index + 1) % self._num_towers].release()
