"""What the agent adds to `docker run`, and how it removes containers.

The engine is a script: what real ones do, tests/system/test_launch_docker.py sees.
"""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.agent import containers
from launch.agent.containers import Containers
from tests.launch.launcher import put_script

LABELS = {"LAUNCH_RUN_ID": "r1", "LAUNCH_TASK": "worker/0", "LAUNCH_HOST": "node0.1"}
ORDER: dict[str, Any] = {
    "task": "worker/0",
    "argv": ["docker", "run", "--rm", "cifar10"],
    "cwd": "/",
    "share": None,
    "gpus": None,
    "last": False,
}

# Lists the file names in a folder as its containers; `rm` removes those that are named.
_ENGINE = """\
cd {folder} || exit 1
echo "$*" >> ../calls
case "$1" in
  ps) ls ;;
  rm) shift 2; rm -f "$@" ;;
esac
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    (tmp_path / "containers").mkdir()
    return put_script(tmp_path / "docker", _ENGINE.format(folder=tmp_path / "containers"))


def _words(made: Containers, **order: Any) -> list[str]:
    """What stands between `run` and what the launcher had said."""
    argv = made.prepare({**ORDER, **order}, LABELS)["argv"]
    assert argv[:2] == ["sh", "-c"]
    assert argv[-2:] == ["--rm", "cifar10"]
    return list(argv[argv.index("run") + 1 : -2])


def test_a_container_carries_its_tasks_marks_and_its_users_ids(engine: Path) -> None:
    assert _words(Containers(str(engine))) == [
        "--label=LAUNCH_RUN_ID=r1",
        "--label=LAUNCH_TASK=worker/0",
        "--label=LAUNCH_HOST=node0.1",
        f"--user={os.getuid()}:{os.getgid()}",
    ]


def test_podman_without_root_keeps_the_users_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman = put_script(tmp_path / "podman", "")
    monkeypatch.setattr(os, "getuid", lambda: 1001)
    monkeypatch.setattr(os, "getgid", lambda: 100)
    assert _words(Containers(str(podman)), gpus=[0])[3:] == [
        "--userns=keep-id",
        "--user=1001:100",
        "--device=nvidia.com/gpu=all",
    ]


def test_a_share_of_the_cores_is_a_set_of_them(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6})
    # And its task is told that it has these cores alone.
    words = ["--cpuset-cpus=4,6", "--env=CIFAR10_OWN_CORES=1"]
    assert _words(Containers(str(engine)), share=[1, 2])[-2:] == words


@pytest.mark.parametrize(
    ("there", "wanted", "shown"), [(["0"], None, True), (["0"], [], False), ([], [0], True)]
)
def test_gpus_show_where_they_are_there_or_asked_for(
    engine: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: list[str],
    wanted: "list[int] | None",
    shown: bool,
) -> None:
    monkeypatch.setattr(containers, "gpus_here", lambda: there)
    assert ("--gpus=all" in _words(Containers(str(engine)), gpus=wanted)) == shown


def test_folders_are_mounted_and_the_one_for_output_is_made(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mounts = [("/data/data", "data"), ("/data/output", f"{tmp_path}/new/output")]
    made = Containers(str(engine), mounts)
    assert _words(made, cwd=str(tmp_path))[-2:] == [
        f"--mount=type=bind,source={tmp_path}/data,target=/data/data,readonly",
        f"--mount=type=bind,source={tmp_path}/new/output,target=/data/output",
    ]
    assert (tmp_path / "new" / "output").is_dir()
    of_ps = _words(made, cwd=str(tmp_path), last=True)
    assert not any("--mount" in word for word in of_ps)
    # It needs the one that its script is in.
    of_ps = _words(made, cwd=str(tmp_path), last=True, script="output/own.py")
    assert [word for word in of_ps if "--mount" in word] == [
        f"--mount=type=bind,source={tmp_path}/new/output,target=/data/output"
    ]


def test_an_engine_that_is_not_there_is_an_error() -> None:
    made = Containers("/nowhere/docker")
    words = "/nowhere/docker is not installed; install it, or name another"
    assert (made.remove(LABELS)[1] or "").startswith(words)
    with pytest.raises(OSError, match=f"^{words}"):
        made.prepare(ORDER, LABELS)


def test_a_folder_with_records_that_is_not_there_is_an_error(engine: Path) -> None:
    made = Containers(str(engine), [("/data/data", "no")])
    with pytest.raises(OSError, match=r"^/no does not exist; set docker\.data to the folder with"):
        made.prepare(ORDER, LABELS)


OF_TASK = "--filter=label=LAUNCH_RUN_ID=r1 --filter=label=LAUNCH_TASK=worker/0"


def test_containers_are_killed_and_removed_by_their_labels(engine: Path, tmp_path: Path) -> None:
    for name in ("c1", "c2"):
        (tmp_path / "containers" / name).touch()
    labels = {name: LABELS[name] for name in ("LAUNCH_RUN_ID", "LAUNCH_TASK")}
    assert Containers(str(engine)).remove(labels) == (["c1", "c2"], None)
    listing = f"ps --all --quiet --no-trunc {OF_TASK}"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [listing, "kill c1 c2", "rm --force c1 c2", listing]


@pytest.mark.parametrize("earlier", [True, False])
def test_a_task_begins_once_containers_of_an_earlier_agent_are_removed(
    engine: Path, tmp_path: Path, earlier: bool
) -> None:
    if earlier:
        for name in ("c1", "c2"):
            (tmp_path / "containers" / name).touch()
    order = {**ORDER, "argv": [str(engine), "run", "a b", "cifar10"]}
    done = subprocess.run(
        Containers(str(engine)).prepare(order, LABELS)["argv"], capture_output=True, check=True
    )
    assert done.stdout == b""
    begun, *removed, run = (tmp_path / "calls").read_text().splitlines()
    assert begun == f"ps --all --quiet {OF_TASK}"
    assert removed == (["kill c1 c2", "rm --force c1 c2"] if earlier else [])
    assert run.startswith("run --label=LAUNCH_RUN_ID=r1 ")
    assert run.endswith(" a b cifar10")


def test_a_container_that_comes_late_is_removed_too(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(secs: float) -> None:
        slept.append(secs)
        if len(slept) == 4:
            (tmp_path / "containers" / "late").touch()

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: sum(slept))
    monkeypatch.setattr(containers, "time", clock)
    assert Containers(str(engine)).remove(LABELS, 1) == (["late"], None)
    assert sum(slept) == pytest.approx(1, abs=0.11)


def test_an_engine_that_fails_says_why(tmp_path: Path) -> None:
    words = "echo first >&2\necho 'permission denied' >&2\nexit 1"
    made = Containers(str(put_script(tmp_path / "docker", words)))
    why = made.remove(LABELS)[1] or ""
    assert why.endswith("docker does not work: permission denied")
    assert made.probe("cifar10") == {
        "engine_error": f"{tmp_path}/docker does not work: permission denied",
        "image": None,
    }


def test_a_container_that_stays_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_GIVE_UP_SECS", 0.2)
    made = Containers(str(put_script(tmp_path / "docker", "[ $1 = ps ] && echo c1")))
    assert (made.remove(LABELS)[1] or "").endswith("could not remove c1")


def test_an_image_is_known_by_the_same_id_to_all_engines(tmp_path: Path) -> None:
    words = "[ $1 = image ] && echo sha256:0123456789abcdef\nexit 0"
    made = Containers(str(put_script(tmp_path / "docker", words)))
    assert made.probe("cifar10") == {"engine_error": None, "image": "0123456789ab"}
