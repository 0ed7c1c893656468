"""Controls headless Chromium by the Chrome DevTools Protocol over two pipes, without a driver."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

_FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium has no sandbox for root, the user in containers and in CI
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_START_SECS = 60.0
_CALL_SECS = 30.0


class Chromium:
    """A browser with one page.

    Args:
      profile: folder for the browser's profile.

    Raises:
      FileNotFoundError: there is no Chromium.

    Attributes:
      events: events that the browser reported, oldest first.
    """

    def __init__(self, profile: Path) -> None:
        path = shutil.which("chromium")
        if path is None:
            raise FileNotFoundError(
                "This test opens the report in Chromium, and there is no `chromium` on PATH."
                " `make test-system` installs it; on Debian: apt-get install chromium"
            )
        self.events: list[dict[str, Any]] = []
        self._calls = 0
        self._unread = b""
        commands, self._to_browser = os.pipe()
        self._from_browser, replies = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4. Sources with higher numbers
        # keep one dup2 from overwriting the source of the other.
        sources = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (commands, replies)]

        def connect() -> None:
            os.dup2(sources[0], 3)
            os.dup2(sources[1], 4)

        self._process = subprocess.Popen(
            [path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (commands, replies, *sources):
            os.close(fd)
        self._session: Optional[str] = None
        target = self.call("Target.createTarget", _START_SECS, url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        os.close(self._to_browser)  # the browser ends when this pipe is closed
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from_browser)

    def call(self, method: str, timeout_secs: float = _CALL_SECS, **params: Any) -> Any:
        """Calls a method of the protocol and returns its result.

        Raises:
          RuntimeError: the browser reported an error.
          TimeoutError: the browser did not answer in time.
        """
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout_secs
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._calls:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url: str) -> None:
        """Opens a URL and waits until the page and its pictures are loaded."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + _CALL_SECS
        while not self.reported("Page.loadEventFired"):
            self.events.append(self._receive(deadline))

    def reported(self, method: str) -> list[dict[str, Any]]:
        """Returns the parameters of each event of that name since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from_browser], [], [], left)[0]:
                raise TimeoutError("Chromium did not answer in time")
            data = os.read(self._from_browser, 65536)
            if not data:
                raise ConnectionError(f"Chromium ended: exit code {self._process.wait()}")
            self._unread += data
        message, self._unread = self._unread.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer
