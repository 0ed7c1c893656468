"""What a run's folder shows to those who look at it."""

import time
from pathlib import Path

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.run_folder import RunFolder
from launch.verbs.view import View


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The folder of a run that began a minute ago."""
    folder = RunFolder.create(tmp_path, make_job(on_this_machine(1, 1)))
    folder.add(began=time.time() - 62)
    return folder


def rows(state: str, step: str = "") -> "dict[str, object]":
    return {"tasks": [{"task": "master/0", "host": "here", "state": state, "step": step}]}


def shown(view: View, capfd: pytest.CaptureFixture[str], *, final: bool = False) -> list[str]:
    view.show_new(final=final)
    view.close()
    return capfd.readouterr().out.splitlines()


@pytest.mark.parametrize("hides_tasks", [False, True])
def test_lines_say_that_a_start_lasts(
    hides_tasks: bool, folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    view = View(folder, live=False)
    view.hides_tasks = hides_tasks
    assert shown(view, capfd) == []  # not even its tasks are known
    folder.write_status(rows("starting"))
    (line,) = shown(view, capfd)
    assert line.startswith("1m0")
    assert line.endswith("s elapsed, no training step yet: 1 starting")


def test_nothing_is_said_of_the_start_of_a_run_that_trains_or_is_over(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    view = View(folder, live=False)
    folder.write_status(rows("running", "1/9"))
    assert shown(view, capfd) == []
    folder.write_status(rows("failed"))
    assert shown(view, capfd, final=True) == []


def test_the_last_lines_of_all_tasks_are_in_the_order_of_their_times(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    for task, moments in (("master/0", (100, 103)), ("worker/0", (101, 102))):
        log = folder.log_path(task)
        log.write_text("".join(f"line of {moment}\n" for moment in moments))
        times = (f"{moment}.000 {12 * i}\n" for i, moment in enumerate(moments))
        log.with_suffix(".times").write_text("".join(times))
    view = View(folder, live=False, tail=3, of_tasks=True)
    lines = shown(view, capfd)
    view.end()
    assert lines == [
        "[worker/0 localhost] line of 101",
        "[worker/0 localhost] line of 102",
        "[master/0 localhost] line of 103",
    ]


def test_a_folder_that_cannot_be_written_is_told_once_until_there_is_news(
    folder: RunFolder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view = View(folder, live=False)

    def after(secs: float) -> list[str]:
        now[0] += secs
        return [line for line in shown(view, capfd) if "elapsed" not in line]

    assert after(60) == []  # there is room: the job may just wait
    aside = folder.path.with_name("aside")
    folder.path.rename(aside)
    assert after(9) == []
    words = "No such file or directory; nothing was written there for 10 s, so nothing new is shown"
    assert after(2) == [f"{folder.path}: {words}; the run goes on"]
    assert after(60) == []
    aside.rename(folder.path)
    folder.write_status({**rows("running"), "time": 5.0})
    assert after(2) == []
    assert view.blind == ""
