"""An address where nobody listens."""

import pytest

from tests.cifar10.answering import answering


@pytest.fixture
def nobody() -> str:
    """An address of this machine where nobody listens."""
    with answering() as address:
        pass
    return address
