"""A job for Slurm: what it is asked for, its script, and how it is followed to its end."""

import io
import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.backends.registry import BACKENDS
from launch.backends.slurm import backend as slurm_backend
from launch.backends.slurm import job as slurm_job
from launch.backends.slurm.backend import JobWatch, Slurm, how_it_ended
from launch.backends.slurm.job import cores_per_node
from launch.backends.slurm.job import main as run_job
from launch.backends.slurm.scheduler import JobState, SlurmJob, state_of
from launch.backends.slurm.script import (
    SlurmSettings,
    batch_script,
    description,
    options,
    seconds_of,
)
from launch.cluster.host_list import ROOT, on_chosen_hosts
from launch.cluster.model import FREE_PORTS, Limits
from launch.cluster.tasks import make_job
from launch.connect import tools as tools_called
from launch.errors import HostError, LaunchError
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.verbs.up import _has_started
from tests.launch.backends.samples import read, slurm_cluster
from tests.launch.launcher import put_script, signals_once

TASKS = "backend: slurm\ntasks: {master: 1, worker: 1, ps: 2}\n"

LIMITS = (
    '{"start_secs": 600, "idle_secs": 1800, "grace_secs": 30, "stop_secs": 60, "lease_secs": 30, '
    '"rejoin_secs": 600}'
)
JOB = "launch.backends.slurm.job"
SCRIPT = f"""\
#!/bin/bash
#SBATCH --job-name=cifar10
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --no-requeue
#SBATCH --signal=B:USR1@130
#SBATCH --open-mode=append
#
# Submit it with sbatch; it runs as it stands. On the nodes that Slurm chooses it starts one agent
# each (srun), which runs that node's tasks with their TF_CONFIG. The job ends with the master, and
# its exit code is that of the first task that failed. scancel lets the master save.

cd {ROOT} || exit
exec /data/.venv/bin/python -m {JOB} "$@" -- --train-batch-size=16 'a b' <<'CLUSTER'
backend: "slurm"
tasks: {{"master": 1, "worker": 1, "ps": 2}}
nodes: 2
workdir: "/data"
python: ".venv/bin/python"
agent_python: "python3"
ports: 0
restarts: 0
limits: {LIMITS}
CLUSTER
"""


def test_the_script_reads_as_it_runs() -> None:
    assert batch_script(make_job(slurm_cluster(), ["--train-batch-size=16", "a b"])) == SCRIPT


def test_a_script_that_bash_runs_says_that_sbatch_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setattr("launch.backends.slurm.job.read_cluster", lambda *_: slurm_cluster())
    assert run_job(["--"]) == 2
    assert capsys.readouterr().out == "this is no job of Slurm; submit the script: sbatch SCRIPT\n"


def test_the_description_in_the_script_is_the_cluster(tmp_path: Path) -> None:
    cluster = on_chosen_hosts(
        BACKENDS["slurm"], {"chief": 1, "worker": 3, "ps": 2, "evaluator": 1}, 3
    )
    cluster = replace(
        cluster,
        hosts=tuple(
            replace(host, workdir="/it's: #", python="/opt/py", agent_python="py3", gpus=2)
            for host in cluster.hosts
        ),
        name="exp1",
        ports=3000,
        pass_environment=("API_TOKEN",),
        limits=Limits(start_secs=None, stop_secs=2.5),
        restarts=3,
        gpus_per_task=1,
    )
    found = read(tmp_path, description(cluster))
    assert replace(found, source=cluster.source) == cluster
    free = replace(cluster, ports=FREE_PORTS)
    assert read(tmp_path, description(free)).ports == FREE_PORTS


def test_ps_on_nodes_of_their_own_are_the_second_part_of_the_job(tmp_path: Path) -> None:
    text = f"{TASKS}gpus_per_task: 1\nslurm: {{partition: gpu, time: 30, ps: {{PS}}}}\n"
    cluster = Slurm().arranged(read(tmp_path, text.replace("{PS}", "{partition: cpu, nodes: 2}")))
    roles = [dict(host.roles) for host in cluster.hosts]
    assert roles == [{"master": 1}, {"worker": 1}, {"ps": 1}, {"ps": 1}]
    of_trainers, of_ps = options(cluster)
    assert of_trainers[1:6] == ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1",
                                "--gres=gpu:1", "--partition=gpu"]  # fmt: skip
    assert of_ps == ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1",
                     "--partition=cpu", "--time=30"]  # fmt: skip
    assert "#SBATCH hetjob\n#SBATCH --nodes=2\n" in batch_script(make_job(cluster))
    # The job itself, on its nodes, finds the same.
    assert Slurm().arranged(read(tmp_path, description(cluster))).hosts == cluster.hosts
    with pytest.raises(LaunchError, match="^slurm.ps: nodes must be a whole number from 1 to 2, g"):
        Slurm().arranged(read(tmp_path, text.replace("{PS}", "{nodes: 3}")))


def test_values_of_variables_are_not_in_the_script() -> None:
    cluster = slurm_cluster(environment=(("COLOUR", "green"),), pass_environment=("API_TOKEN",))
    text = batch_script(make_job(cluster))
    assert "green" not in text
    assert "COLOUR" in text


def test_settings_become_options(tmp_path: Path) -> None:
    cluster = read(
        tmp_path,
        f"{TASKS}nodes: 1\ngpus_per_task: 2\nslurm:\n  partition: gpu\n  account: lab\n"
        "  qos: high\n"
        "  time: 1:30:00\n  mem: 16G\n  cpus_per_task: 8\n  gpu_type: a100\n  exclusive: true\n"
        "  requeue: true\n  options: [--constraint=ib, --mail-type=END]\n",
    )
    assert options(cluster)[0] == [
        "--job-name=cifar10",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--cpus-per-task=32",
        "--gres=gpu:a100:4",
        "--partition=gpu",
        "--account=lab",
        "--qos=high",
        "--time=1:30:00",
        "--mem=16G",
        "--exclusive",
        "--requeue",
        "--signal=B:USR1@130",
        "--open-mode=append",
        "--constraint=ib",
        "--mail-type=END",
    ]


def test_the_warning_before_a_short_time_limit_leaves_half_of_it() -> None:
    for time, secs in (("2", 60), ("90:30", 130), ("0:40", 20), ("0-0:1", 30)):
        cluster = slurm_cluster(settings={"slurm": SlurmSettings(time=time)})
        assert f"--signal=B:USR1@{secs}" in options(cluster)[0]
    assert "--signal=B:USR1@20" in options(slurm_cluster(limits=Limits(stop_secs=5)))[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time: soon", "lab.yaml:4: time must be minutes, h:mm:ss or d-hh:mm:ss, as sbatch"),
        ("mem: lots", "lab.yaml:4: mem must be a size such as 16G, as sbatch takes it, got 'lots'"),
        ("cpus_per_task: 0", "lab.yaml:4: cpus_per_task must be a whole number from 1 to 1024"),
        ("options: ['--x=a b']", "lab.yaml:4: options must be options like --name or"),
        ("options: [--nodes=4]", "which the launcher sets, got '--nodes=4'"),
    ],
)
def test_what_slurm_cannot_be_told_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LaunchError) as raised:
        read(tmp_path, f"{TASKS}slurm:\n  {text}\n")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("90:30", 5430), ("1:30:00", 5400), ("2-12:30", 217_800), ("2-12:30:10", 217_810)],
)
def test_time_limits_are_read_as_sbatch_reads_them(time: str, seconds: int) -> None:
    assert seconds_of(time) == seconds


def test_cores_per_node_are_read_as_slurm_writes_them() -> None:
    assert cores_per_node("8(x2),4") == [8, 8, 4]
    assert cores_per_node("16") == [16]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder whose stand-ins are called in the place of Slurm's commands."""
    monkeypatch.setattr(slurm_backend, "HURRY_SECS", 0.05)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_a_job_that_slurm_has_forgotten_is_looked_up_in_its_accounting(tools: Path) -> None:
    put_script(
        tools / "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    )
    put_script(tools / "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert SlurmJob("7").poll() == JobState("forgotten", is_over=True)
    put_script(tools / "sacct", "[ $1 = --jobs=7 ] && echo 'CANCELLED by 0|m[1-2]|0:15'")
    found = SlurmJob("7").poll()
    assert (found.words, found.is_over, found.exit_code) == ("CANCELLED m[1-2]", True, 143)
    assert (found.cause, found.why) == (ExitReason.CANCELLED, "cancelled in Slurm")


@pytest.mark.parametrize("said", ["echo 'words that nobody knows' >&2; exit 1", "echo JobId=77"])
def test_an_answer_that_says_nothing_of_a_job_is_no_end_of_it(tools: Path, said: str) -> None:
    put_script(tools / "scontrol", said)
    with pytest.raises(HostError, match="^scontrol: (words that nobody knows|job 77 has no state)"):
        SlurmJob("77").poll()


@pytest.mark.parametrize(
    ("state", "exit_code", "cause", "words"),
    [
        (
            "TIMEOUT",
            124,
            ExitReason.TIME_LIMIT,
            "over its time limit; raise `time:` under `slurm:`",
        ),
        (
            "NODE_FAIL",
            1,
            ExitReason.HOST_LOST,
            "a node has failed; `requeue: true` lets it go on else",
        ),
        ("FAILED", 1, ExitReason.TASK_FAILED, "it ended as FAILED m[1-2], exit code 0"),
    ],
)
def test_an_end_without_a_word_is_explained(
    tmp_path: Path, state: str, exit_code: int, cause: ExitReason, words: str
) -> None:
    ended = state_of({"JobState": state, "NodeList": "m[1-2]"})
    (tmp_path / "slurm.out").write_text("".join(f"line {i}\n\n" for i in range(14)))
    result = how_it_ended("Slurm job 7", ended, None, tmp_path / "slurm.out")
    assert result.exit_code == exit_code
    assert result.reason.startswith(f"Slurm job 7: {words}")
    lines = [f"  | line {i}" for i in range(2, 14)]
    assert result.details == (*lines, f"  log: {tmp_path}/slurm.out")
    assert result.cause is cause
    (line,) = how_it_ended("Slurm job 7", ended, None, tmp_path / "no.out").details
    words = "is empty or not there; do the nodes share that folder? see --state-dir"
    assert line == f"  log: {tmp_path}/no.out {words}"


def test_the_jobs_own_word_goes_before_slurms(tmp_path: Path) -> None:
    def end(state: str, said: Result) -> Result:
        ended = state_of({"JobState": state, "NodeList": "m2"})
        return how_it_ended("Slurm job 7", ended, said, tmp_path / "slurm.out")

    said = Result(3, "worker/0 on m2 failed: exit code 3", details=("  | x",))
    result = end("NODE_FAIL", said)
    assert (result.exit_code, result.details) == (3, ("  | x",))
    assert result.reason.startswith("worker/0 on m2 failed: exit code 3 (Slurm: a node has failed")
    # An end by the platform that the job could not explain is explained; no other one is.
    words = "m2: it was asked to end"
    said = Result(143, words, cause=ExitReason.PLATFORM)
    assert end("FAILED", said).reason == f"{words} (Slurm: it ended the job; state FAILED m2)"
    assert end("FAILED", replace(said, cause=ExitReason.CANCELLED)).reason == words
    result = end("PREEMPTED", said)
    assert (
        result.reason == f"{words} (Slurm: preempted by another job; `requeue: true` lets it go on)"
    )
    assert (result.exit_code, result.cause) == (143, ExitReason.PREEMPTED)


def test_a_job_in_a_state_that_is_neither_waiting_nor_live_is_over() -> None:
    for state in ("STOPPED", "SIGNALING", "COMPLETING", "PENDING"):
        assert not state_of({"JobState": state}).is_over
    assert state_of({"JobState": "EXPEDITED_END"}).is_over


@pytest.mark.parametrize(
    ("shown", "code", "cause"),
    [
        ("JobState=RUNNING PreemptTime=2026-01-01T00:00:00", 143, "preempted"),
        ("JobState=RUNNING", 124, "time limit"),
    ],
)
def test_a_script_submitted_by_hand_says_why_it_was_ended(
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    shown: str,
    code: int,
    cause: str,
) -> None:
    def run(job: Any, folder: RunFolder, transport: Any, display: Display) -> Result:
        display.task_line("master/0", "m1", "hello")
        os.kill(os.getpid(), signal.SIGUSR1)
        return Result(143, "stopped by SIGTERM", cause=ExitReason.USER)

    put_script(tools / "scontrol", f"echo {shown}")
    monkeypatch.setattr("launch.backends.slurm.job.read_cluster", lambda *_: slurm_cluster())
    monkeypatch.setattr("launch.backends.slurm.job._on_its_nodes", lambda cluster: cluster)
    monkeypatch.setattr("launch.backends.slurm.job._transport", lambda *_: None)
    monkeypatch.setattr("launch.backends.slurm.job.run_with_agents", run)
    monkeypatch.setattr("launch.backends.slurm.job.state_dir", lambda: tools / "state")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    before = [(signum, signal.getsignal(signum)) for signum in (signal.SIGTERM, signal.SIGUSR1)]
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert run_job(["--"]) == code
    finally:
        for signum, handler in before:
            signal.signal(signum, handler)
    assert "[master/0 m1] hello\n" in capfd.readouterr().out
    (folder,) = (tools / "state").iterdir()
    assert RunFolder(folder).status()["cause"] == cause


def test_the_third_time_limit_without_a_newer_checkpoint_is_the_last(tmp_path: Path) -> None:
    def time_limit(*details: str) -> bool:
        result = Result(124, "late", details=details, cause=ExitReason.TIME_LIMIT)
        return slurm_job._may_go_on(tmp_path / "timeouts", result)

    assert [time_limit() for _ in range(3)] == [True, True, False]
    assert [time_limit("saved o/model.ckpt-40") for _ in range(3)] == [True, True, False]
    assert time_limit("saved o/model.ckpt-80")
    assert [time_limit() for _ in range(2)] == [True, False]  # it did not come to a checkpoint


def test_the_nodes_of_a_job_are_known_without_scontrol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "m[08-09]")
    hosts = slurm_job._on_its_nodes(slurm_cluster()).hosts
    assert [(host.name, host.address) for host in hosts] == [("m08", "m08"), ("m09", "m09")]
    monkeypatch.setenv("SLURM_JOB_NODELIST", "m[1-3]")
    with pytest.raises(LaunchError, match="the job has 3 nodes, but its description 2; change"):
        slurm_job._on_its_nodes(slurm_cluster())


class Controller(SlurmJob):
    """The job of Slurm, whose state a test sets."""

    def __init__(self) -> None:
        super().__init__("7")
        self.now_in, self.reason = "PENDING", ""
        self.requests: list[str] = []
        self.num_questions = 0
        self.after: dict[str, str] = {}  # request -> the state that it leads to
        self.is_silent = False

    def poll(self) -> JobState:
        self.num_questions += 1
        if self.is_silent:
            raise HostError("slurmctld: no answer")
        return state_of({"JobState": self.now_in, "Reason": self.reason})

    def cancel(self, *, saves: bool) -> None:
        request = "ask_to_end" if saves else "cancel"
        self.requests.append(request)
        self.now_in = self.after.get(request, self.now_in)


class Scene:
    """A launcher that follows the job, with a clock that the test moves on."""

    def __init__(self, folder: Path, slurm: Controller) -> None:
        self.slurm, self.folder, self.screen = slurm, RunFolder(folder), io.StringIO()
        self.display = Display(self.screen, live=False)
        self.watch = JobWatch(slurm, self.folder, self.display)
        self.now, self.stops = 0.0, list[int]()
        self.result: Any = None

    def steps(self, secs: float) -> None:
        until = self.now + secs
        while self.now < until and self.result is None:
            self.result = self.watch.step(self.now, self.stops)
            self.now += 0.2

    def shown(self) -> list[str]:
        self.display.close()
        return self.screen.getvalue().splitlines()

    def job_writes(self, time: float, **fields: Any) -> None:
        row = {"task": "master/0", "host": "m1", "state": "running", "step": ""}
        status = {"time": time, "exit_code": None, "reason": None, "cause": None}
        self.folder.write_status(
            {**status, "tasks": [{**row, "images_per_sec": "", "last": ""}], **fields}
        )


@pytest.fixture
def slurm() -> Controller:
    return Controller()


@pytest.fixture
def scene(tmp_path: Path, slurm: Controller) -> Any:
    scene = Scene(tmp_path, slurm)
    yield scene
    scene.display.close()


def test_slurm_is_asked_every_five_seconds_and_news_are_told_once(scene: Scene) -> None:
    scene.slurm.reason = "Resources"
    scene.steps(30)
    scene.slurm.is_silent = True
    scene.steps(30)
    scene.slurm.is_silent, scene.slurm.now_in, scene.slurm.reason = False, "RUNNING", ""
    scene.steps(40)
    assert scene.slurm.num_questions == 20
    assert scene.shown() == [
        "Slurm job 7: PENDING Resources",
        "slurmctld: no answer; the job goes on",
        "Slurm job 7: RUNNING",
    ]


@pytest.mark.parametrize(("ended_secs", "is_over"), [(30, False), (60, True)])
def test_a_job_that_clears_up_for_long_is_over_if_it_has_written_its_end(
    scene: Scene, ended_secs: float, is_over: bool
) -> None:
    scene.slurm.now_in = "COMPLETING"
    scene.steps(100)
    scene.job_writes(2.0, exit_code=0, reason="master/0 is done")
    scene.steps(ended_secs)
    assert (scene.result is not None) == is_over


def test_a_job_that_its_user_stops_says_what_it_saved(scene: Scene) -> None:
    scene.slurm.now_in = "RUNNING"
    scene.steps(1)
    scene.stops.append(signal.SIGINT)
    scene.steps(1)
    scene.job_writes(2.0, exit_code=143, reason="told", details=["saved output/model.ckpt-3"])
    scene.slurm.now_in = "FAILED"
    scene.steps(60)
    assert (scene.slurm.requests, scene.result.reason) == (["ask_to_end"], "stopped by SIGINT")
    assert scene.result.details == ("saved output/model.ckpt-3",)


def test_a_stop_asks_each_start_of_the_job_once_and_cancels_what_waits(scene: Scene) -> None:
    scene.stops.append(signal.SIGTERM)
    for state in ("RUNNING", "PENDING", "RUNNING", "COMPLETING", "RUNNING"):  # it is requeued twice
        scene.slurm.now_in = state
        scene.steps(5)
        scene.slurm.requests.append(state)
    scene.stops.append(signal.SIGTERM)  # The second one cancels what runs, too.
    scene.steps(0.3)
    ask, cancel = ["ask_to_end", "RUNNING"], ["cancel"] * 5
    assert scene.slurm.requests == [*ask, *cancel, "PENDING", *ask, "COMPLETING", *ask, "cancel"]


def test_a_lost_terminal_ends_only_the_following(scene: Scene) -> None:
    scene.slurm.now_in = "RUNNING"
    scene.steps(1)
    scene.job_writes(1.0)
    scene.stops.append(signal.SIGHUP)
    scene.steps(1)
    assert scene.result.exit_code == 129
    assert scene.result.reason == "the launcher leaves; Slurm job 7 goes on"
    assert scene.slurm.requests == []
    assert scene.folder.status()["exit_code"] is None


def test_a_job_is_cancelled_if_a_signal_comes_before_sbatch_answers(tools: Path) -> None:
    asked, cancelled = tools / "asked", tools / "cancelled"
    put_script(tools / "sbatch", f"touch {asked}; sleep 1; echo 7")
    put_script(tools / "squeue", "echo 7")
    put_script(
        tools / "scontrol",
        f"[ -e {cancelled} ] && echo JobState=CANCELLED || echo JobState=PENDING",
    )
    put_script(tools / "scancel", f"echo $1 > {cancelled}")
    (tools / "run").mkdir()
    folder, display = RunFolder(tools / "run"), Display(io.StringIO(), live=False)
    with signals_once(asked.exists, signal.SIGINT):
        result = Slurm().run(make_job(slurm_cluster()), folder, display)
    display.close()
    assert result == Result(130, "stopped by SIGINT", cause=ExitReason.USER)
    assert folder.status()["exit_code"] == 130
    assert cancelled.read_text() == "7\n"


def test_sbatch_gets_what_the_job_needs_and_nothing_of_a_job_around_it(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_script(tools / "sbatch", f'echo "$@" >{tools}/words; env >{tools}/env; echo "7;cluster"')
    monkeypatch.setenv("SLURM_JOB_ID", "6")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    (tools / "100%j").mkdir()
    folder = RunFolder(tools / "100%j")
    job = make_job(slurm_cluster(environment=(("COLOUR", "green"),), name="exp1"))
    assert Slurm().submit(job, folder) == "7"
    words, env = ((tools / name).read_text().split() for name in ("words", "env"))
    assert {f"--output={tools}/100%%j/slurm.out", "--job-name=exp1-100%j"} <= set(words)
    assert words[-2:] == [f"{folder.path}/cifar10.sbatch", f"--run={folder.path}"]
    assert [word for word in env if word.startswith("SLURM_")] == ["SLURM_CONF=/etc/slurm.conf"]
    assert "COLOUR=green" in env
    assert {path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {0o600}


def test_a_job_has_started_for_detach_while_it_is_queued(tools: Path) -> None:
    put_script(tools / "sbatch", "echo 7")
    put_script(tools / "scontrol", "echo JobState=PENDING")
    folder, screen = RunFolder(tools), io.StringIO()
    display = Display(screen, live=False)
    with signals_once(lambda: "PENDING" in screen.getvalue(), signal.SIGHUP):
        assert Slurm().run(make_job(slurm_cluster()), folder, display).exit_code == 129
    assert _has_started(folder, Slurm())
    assert {row["state"] for row in folder.status()["tasks"]} == {"waiting"}


def test_clean_of_a_job_that_is_being_requeued_leaves_none_that_starts_later(
    slurm: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = ["COMPLETING", "COMPLETING", "PENDING", "PENDING", "CANCELLED"]

    def sleep(secs: float) -> None:
        slurm.now_in = states.pop(0)

    clock = SimpleNamespace(sleep=sleep, monotonic=itertools.count(step=3).__next__)
    monkeypatch.setattr(tools_called, "time", clock)
    monkeypatch.setattr(Slurm, "job_of", lambda *_: slurm)
    slurm.now_in, slurm.after = "RUNNING", {"cancel": "COMPLETING"}
    assert Slurm().clean({"run": "run7"}) == ["Slurm job 7: cancelled; it was RUNNING"]
    assert slurm.requests == ["cancel"] * 3
    assert states == []
