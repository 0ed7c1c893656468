"""A queue whose senders wait."""

import threading

from launch.connect.inbox import Inbox
from tests.launch.launcher import wait_for


def test_a_sender_waits_for_the_reader_and_not_for_one_that_has_gone() -> None:
    inbox: Inbox[int] = Inbox(3)
    sent: list[int] = []

    def send() -> None:
        for number in range(6):
            inbox.put(number)
            sent.append(number)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    wait_for(lambda: sent == [0, 1, 2], "a full queue")
    assert inbox.get() == 0
    wait_for(lambda: sent == [0, 1, 2, 3], "the next item")
    assert inbox.qsize() == 3
    inbox.close()
    sender.join(60)
    assert sent == [0, 1, 2, 3, 4, 5]
    assert [inbox.get() for _ in range(inbox.qsize())] == [1, 2, 3]
