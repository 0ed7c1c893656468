"""The progress that the launcher reads from a line of output."""

from typing import Optional

import pytest

from launch.record.progress import Progress, read_progress, read_saved


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            "epoch 2.9/4  step 207/282  loss 0.328  accuracy 0.922  lr 0.0169  553 images/s  17s",
            Progress(207, 282, "553"),
        ),
        ("epoch 2.1/10  step 1,721/3,516  loss 1.018", Progress(1721, 3516, "")),
        ("step 12  loss 2.3  1,024.5 images/s", Progress(12, None, "1,024.5")),
        ("step 1/2  9.5 img/s", Progress(1, 2, "9.5")),
        # One of several asynchronous trainers has taken a step after the last one.
        ("epoch 1.0/1  step 61/60  loss 1.018", Progress(61, 61, "")),
    ],
)
def test_a_progress_line_is_read(line: str, progress: Progress) -> None:
    assert read_progress(line) == progress


@pytest.mark.parametrize(
    "line",
    [
        "training to step 3,516; output: output",
        "validation accuracy 0.3456 at step 352 (best so far)",
        "stepping 3/4",
        "",
    ],
)
def test_another_line_is_not(line: str) -> None:
    assert read_progress(line) is None


@pytest.mark.parametrize(
    ("line", "saved"),
    [
        ("saved demo/output/model.ckpt-31", "demo/output/model.ckpt-31"),
        ("saved: gs://bucket/my run/model.ckpt-31 ", "gs://bucket/my run/model.ckpt-31"),
        ("saved", None),
        ("it saved demo/output/model.ckpt-31", None),
    ],
)
def test_a_line_names_what_was_saved(line: str, saved: Optional[str]) -> None:
    assert read_saved(line) == saved
