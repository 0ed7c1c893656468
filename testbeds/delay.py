"""Delays network frames between two TAP devices, in user space.

With segmentation offload (TSO), the kernel hands over frames of up to 64 kB of a TCP stream, so
that a gigabit per second is only some thousand frames.
"""

import collections
import contextlib
import fcntl
import os
import select
import struct
import threading
import time
from collections.abc import Sequence

# linux/if_tun.h
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6 = 0x01, 0x02, 0x04
_LONGEST = 70_000  # most bytes of a frame and its header


class DelayRelay:
    """Creates two TAP devices, and forwards each frame from one to the other after a delay.

    Args:
      names: names of the two devices.
      delay_secs: seconds for which each frame is held.

    Raises:
      OSError: TAP devices cannot be created here.
    """

    def __init__(self, names: Sequence[str], delay_secs: float) -> None:
        self._taps = [_open_tap(name) for name in names]
        self._delay_secs = delay_secs
        self._held: list[collections.deque[tuple[float, bytes]]] = [
            collections.deque() for _ in names
        ]
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._pass_on, name="delay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the relay and removes its devices."""
        os.close(self._wake[1])
        self._thread.join()
        for descriptor in (*self._taps, self._wake[0]):
            os.close(descriptor)

    def _pass_on(self) -> None:
        # Real-time priority for this thread: without it, frames would be held for up to twice as
        # long on busy cores.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while True:
            ready, _, _ = select.select([*self._taps, self._wake[0]], [], [], self._patience())
            if self._wake[0] in ready:
                return
            now = time.monotonic()
            for tap, held in zip(self._taps, self._held):
                if tap in ready:
                    held.extend((now + self._delay_secs, frame) for frame in _read_all(tap))
            for held, other in zip(self._held, reversed(self._taps)):
                while held and held[0][0] <= time.monotonic():
                    # A device that is down drops frames, as a cable does.
                    with contextlib.suppress(OSError):
                        os.write(other, held.popleft()[1])

    def _patience(self) -> float:
        due = [held[0][0] for held in self._held if held]
        return max(0.0, min(due) - time.monotonic()) if due else 60.0


def _read_all(tap: int) -> list[bytes]:
    frames: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(frames) < 100:
            frames.append(os.read(tap, _LONGEST))
    return frames


def _open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6)
    return tap
