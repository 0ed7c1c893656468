"""What the verbs say of a run whose run.json is damaged, and how `clean` cleans it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record import events
from launch.record.run_folder import RunFolder
from launch.verbs.cli import main

JOB = make_job(on_this_machine(1, 1))


def damaged(parent: Path, text: str, *, has_ended: bool = True) -> RunFolder:
    """Makes a run whose run.json has `text`; KEPT in it is the first half of what was there."""
    folder = RunFolder.create(parent, JOB)
    whole = (folder.path / "run.json").read_text()
    (folder.path / "run.json").write_text(text.replace("KEPT", whole[: len(whole) // 2]))
    if has_ended:
        events.add(folder, [events.event("run ends", "master/0 is done", exit_code=0)])
    return folder


def output(capsys: pytest.CaptureFixture[str], parent: Path, *words: str) -> tuple[int, str]:
    code = main([*words, "--state-dir", str(parent)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize("text", ["KEPT", '{"backend": "local", "tasks": 5}', "with a host"])
def test_clean_ends_what_is_left_and_removes_the_folder(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path, "" if text == "with a host" else text)
    if text == "with a host":
        events.add(folder, [events.event("starts", host="localhost")])
    left = subprocess.Popen(["sleep", "300"], env={**os.environ, "LAUNCH_RUN_ID": folder.run_id})
    code, said = output(capsys, tmp_path, "clean")
    assert code == 1
    assert said.startswith(f"error: run {folder.run_id}: {folder.path}/run.json is damaged")
    assert left.poll() is None
    assert (folder.path / "logs").exists()
    code, said = output(capsys, tmp_path, "clean", "--run", folder.run_id)
    assert left.wait() == -15
    assert (code, said.splitlines()) == (
        0,
        [
            f"run {folder.run_id}: localhost: ended 1 ({left.pid})",
            f"run {folder.run_id}: its run.json was damaged; its folder is removed",
        ],
    )
    assert not folder.path.exists()


def test_a_run_that_may_go_on_is_cleaned_only_by_its_name_and_once_its_launcher_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path, '{"backend": "local"', has_ended=False)
    folder.write_status({"exit_code": None, "tasks": []})
    code, said = output(capsys, tmp_path, "clean")
    assert code == 1
    assert said.startswith(f"error: run {folder.run_id}: {folder.path}/run.json is damaged")
    code, said = output(capsys, tmp_path, "clean", "--run", folder.run_id)
    assert code == 1
    assert "its launcher has written status.json 0 s ago: end that process, or try" in said
    os.utime(folder.path / "status.json", (0, 0))
    assert output(capsys, tmp_path, "clean", "--run", folder.run_id)[0] == 0
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ('{"backend": "kubernetes", "kub', "kubernetes"),
        ('{"backend": "ssh", "hosts": [', "ssh"),
        ("", "its backend, which is not known,"),
        ("[]", "its backend, which is not known,"),
    ],
)
def test_a_job_that_only_run_json_could_find_is_left_to_the_platforms_tools(
    tmp_path: Path, text: str, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path, text)
    code, said = output(capsys, tmp_path, "clean", "--run", folder.run_id)
    assert code == 1
    words = f"where {backend} runs its job, whose name or LAUNCH_RUN_ID ends with {folder.run_id}: "
    assert words in said
    assert folder.path.exists()


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "attach"])
@pytest.mark.parametrize("text", ["", "KEPT", '{"run": "x"}'])
def test_every_other_verb_answers_in_one_line_with_the_way_out(
    tmp_path: Path, verb: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path, text)
    code, said = output(capsys, tmp_path, verb)
    way_out = "to end what the run may have left, and to remove its folder: python -m launch clean"
    assert code == 1
    path = re.escape(str(folder.path))
    flags = re.escape(f"--run {folder.run_id} --state-dir {tmp_path}")
    assert re.fullmatch(rf"error: {path}/run.json is damaged \(.+\); {way_out} {flags}\n", said)
