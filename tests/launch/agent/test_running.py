"""How what a host has is shared out."""

import pytest

from launch.agent.running import part


@pytest.mark.parametrize(
    ("items", "parts"),
    [
        ([0, 1, 2, 3], [[0], [1], [2, 3]]),
        ([0, 1, 2, 3, 4, 5], [[0, 1], [2, 3], [4, 5]]),
        ([0, 1], [[0], [1], [0]]),
        ([], [[], [], []]),
    ],
)
def test_parts_are_equal_and_never_empty(items: list[int], parts: list[list[int]]) -> None:
    assert [part(items, (i, 3)) for i in range(3)] == parts
