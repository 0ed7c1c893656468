"""How long a task that the chief needs keeps running after a signal. Standard library only."""

from typing import Callable

from cifar10.host.process import GRACE_SECS, StopRequest


class GracePeriod:
    """Ends once the chief has ended, but at most GRACE_SECS after a signal.

    A platform that ends a job signals all its tasks at the same time. To end its step and save, the
    chief still needs its parameter servers, and the workers for whose gradients it waits.

    Args:
      stop: knows whether a signal has arrived.
      is_chief_here: function that returns whether the chief answers.
    """

    def __init__(self, stop: StopRequest, is_chief_here: Callable[[], bool]) -> None:
        self._stop, self._is_chief_here = stop, is_chief_here

    @property
    def is_over(self) -> bool:
        """Whether a signal arrived, and the chief has ended or GRACE_SECS are over."""
        if not self._stop.requested:
            return False
        return self._stop.secs > GRACE_SECS or not self._is_chief_here()

    def check(self) -> None:
        """Raises Stopped if the grace period is over."""
        if self.is_over:
            self._stop.check()
