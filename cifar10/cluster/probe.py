"""Asks a task's TensorFlow server whether its process runs. Standard library only.

TensorFlow's servers speak gRPC, whose protocol is HTTP/2. There both sides begin a connection with
a SETTINGS frame (RFC 9113, section 3.4), and the server's frame is the answer. That the kernel
accepts the connection says less: it does so even for a process that is stopped or hangs.
"""

import contextlib
import socket
import struct
import time
from typing import Optional

# What a client sends first, with an empty SETTINGS frame. Without it, a TensorFlow server keeps the
# connection for two minutes, even if the client has closed it.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + b"\4" + b"\0" + b"\0\0\0\0"
# A frame's header: 3 bytes of payload length, type, flags, and 4 bytes of stream.
_HEADER_BYTES, _SETTINGS_OF_CONNECTION = 9, b"\4\0\0\0\0\0"
_SETTING_BYTES, _MOST_PAYLOAD_BYTES = 6, 16_384
# Seconds after which the kernel gives up a connection to a machine that acknowledges no packet.
_LOST_SECS = 5.0
_RESET = struct.pack("ii", 1, 0)


class Probe:
    """Asks one task; each answer takes a connection of its own.

    Args:
      address: `host:port` of the task.

    Attributes:
      is_here: whether the task's process existed at the latest question, though it may hang.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._socket: Optional[socket.socket] = None
        self._received = b""
        self.is_here = False

    def answers(self, timeout_secs: float) -> bool:
        """Asks the task, and returns whether its process answers within the timeout.

        If it does not, the connection remains, and the next call waits for the same answer.
        """
        deadline = time.monotonic() + timeout_secs
        try:
            connected = self._socket or self._connect(timeout_secs)
            self.is_here = True
            while len(self._received) < _HEADER_BYTES:
                connected.settimeout(max(deadline - time.monotonic(), 0.001))  # 0: non-blocking
                try:
                    received = connected.recv(_HEADER_BYTES - len(self._received))
                except socket.timeout:
                    return False
                if not received:
                    raise ConnectionError("the task has closed the connection")
                self._received += received
            self.is_here = _is_greeting(self._received)
        except OSError:
            self.is_here = False
        self.close()
        return self.is_here

    def close(self) -> None:
        """Closes the connection if there is one."""
        if self._socket:
            self._socket.close()
        self._socket, self._received = None, b""

    def _connect(self, timeout_secs: float) -> socket.socket:
        self._socket = socket.create_connection(self._place, timeout_secs)
        # Closing sends a reset, so that no port of this machine stays occupied for a minute.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with contextlib.suppress(AttributeError):  # Only Linux has the option.
            milliseconds = int(1000 * _LOST_SECS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self._socket.sendall(_PREFACE)
        return self._socket


def _is_greeting(header: bytes) -> bool:
    """Returns whether a frame's header is that of the SETTINGS with which a server begins."""
    length = int.from_bytes(header[:3], "big")
    fits = length % _SETTING_BYTES == 0 and length <= _MOST_PAYLOAD_BYTES
    return fits and header[3:] == _SETTINGS_OF_CONNECTION
