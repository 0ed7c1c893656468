"""This process: what it says, which signals it gets, and how it ends. Standard library only."""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Callable, NoReturn, Optional

from cifar10.errors import Stopped
from cifar10_program.streams import discard
from cifar10_program.streams import one_line as one_line

# Platforms wait at least 10 s, as `docker stop` does, before they kill a process.
GRACE_SECS = 8.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SAME_SECS = 1.0
_LAST_LINE_SECS = 2.0


def log(text: str) -> None:
    """Prints lines and flushes them; once a pipe's reader has ended (`| head`), discards output.

    Characters that terminals obey, such as those of names from files, become spaces.
    """
    try:
        print("\n".join(map(one_line, text.split("\n"))), flush=True)
    except BrokenPipeError:
        discard(sys.stdout)


def end_process(line: str, code: int, saved: Optional[str] = None) -> NoReturn:
    """Prints the last line on standard error and ends the process, whatever the main thread does.

    The end of the interpreter would abort the process while a thread is inside TensorFlow, for
    example because Python's garbage collector deletes a session there. And the process ends even if
    the line cannot be printed, for example into a file on a full disk, or into a terminal that is
    stopped by Ctrl-S: nobody else would end it.

    Args:
      line: the line; empty: none.
      code: the exit code.
      saved: the checkpoint from which a run that a signal ends continues; None: there is none.
    """
    try:
        last = threading.Thread(target=_print_last, args=(line, saved), daemon=True)
        last.start()  # It fails where no more threads can be had.
        last.join(_LAST_LINE_SECS)
    finally:
        os._exit(code)


def _print_last(line: str, saved: Optional[str]) -> None:
    # AttributeError: a stream is closed since the process began.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        try:
            if saved:
                print(one_line(f"saved {saved}"), file=sys.stderr)  # The launcher reads that line.
            # Names and addresses in it may be from another program.
            print(one_line(line), end="\n" if line else "", file=sys.stderr, flush=True)
        finally:
            sys.stdout.flush()


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code, see `end_process`; in a notebook, only the script."""
    if "IPython" in sys.modules or hasattr(sys, "ps1"):  # The process is the user's.
        sys.exit(code)
    end_process("", code)


class StopRequest:
    """Records that a signal asked the run to end.

    A signal is only recorded, since it may arrive while a checkpoint is being written; training
    reads `requested` after each step. A second signal ends the process immediately, unless it
    arrives within a second of the first: a platform and the launcher may both send the same signal.

    A thread records the signal: Python runs handlers in the main thread only, which does not return
    from TensorFlow while it waits there for another task's gradients.

    Args:
      most_secs: the process ends so many seconds after a signal, whatever it does; None: it has as
        much time as it needs, for example to save.

    Attributes:
      saved: path of the checkpoint from which the run would continue; None: there is none.
    """

    def __init__(self, most_secs: Optional[float] = None) -> None:
        self._most_secs = most_secs
        self._signum: Optional[int] = None
        self._since = 0.0
        self.saved: Optional[str] = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handles SIGTERM and SIGINT for the time of a `with` statement.

        SIGUSR1 prints each thread's stack to stderr. A signal that this process ignores, such as
        SIGINT in the background of a script, stays ignored. Enter it in the main thread, before
        TensorFlow loads.
        """
        # At once, whatever the threads wait for. A notebook's sys.stderr has no descriptor.
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or sys.stderr)
        noted, signalled = socket.socketpair()
        signalled.setblocking(False)
        # Python's C-level handler writes the signal's number to this descriptor, even while the
        # main thread is inside TensorFlow.
        wakeup = signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
        for signum, handler in before.items():
            # The thread handles the signal, but without a handler here, the default action would
            # apply.
            if handler is not signal.SIG_IGN:
                signal.signal(signum, lambda signum, frame: None)
        threading.Thread(target=self._listen, args=(noted,), daemon=True).start()
        try:
            yield
        finally:
            for signum, handler in before.items():
                if handler is not None:  # None: it was not installed by Python.
                    signal.signal(signum, handler)
            signal.set_wakeup_fd(wakeup)
            signalled.close()  # It ends the thread.
            faulthandler.unregister(signal.SIGUSR1)

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._signum is not None

    def ends(self, is_needed: Callable[[], bool]) -> bool:
        """Returns whether a signal ends this process: GRACE_SECS later, or once nobody needs it.

        A platform that ends a job signals all its tasks at the same time. To end its step and save,
        the chief still needs its parameter servers, and the workers for whose gradients it waits.

        Args:
          is_needed: function that returns whether another task may still need this process.
        """
        return self.requested and (self.secs > GRACE_SECS or not is_needed())

    def check(self, is_needed: Callable[[], bool] = lambda: False) -> None:
        """Raises Stopped if a signal ends this process, see `ends`."""
        if self._signum is not None and self.ends(is_needed):
            raise Stopped(self._signum, self.saved)

    @property
    def secs(self) -> float:
        """Seconds since the first signal arrived; 0 before that."""
        return 0.0 if self._signum is None else time.monotonic() - self._since

    def _listen(self, noted: socket.socket) -> None:
        with noted:
            while numbers := noted.recv(64):
                for signum in numbers:
                    if signum in _SIGNALS:
                        self._note(signum)

    def _note(self, signum: int) -> None:
        if self._signum is None:
            self._since = time.monotonic()
            self._signum = signum
            if self._most_secs is not None:
                last = (str(Stopped(signum)), 128 + signum)
                timer = threading.Timer(self._most_secs, end_process, last)
                timer.daemon = True
                timer.start()
        elif self.secs > _SAME_SECS:
            # End immediately: the next run can continue even if a save is interrupted here.
            os._exit(128 + signum)
