"""A cluster of real processes, from their start to the last exit."""

import json
import pathlib

import pytest

from cifar10.output import checkpoints
from testbeds.ports import free_ports
from testbeds.processes import ClusterOfProcesses, cluster, tasks_started_by
from tests.cifar10 import program
from tests.documents import check_fields

pytestmark = pytest.mark.system

# Of 180 training images; a step takes milliseconds.
SETTINGS = (
    *("--model=mlp", "--learning-rate=0.01", "--train-batch-size=20", "--train-steps=100"),
    *("--checkpoint-steps=50", "--log-steps=5", "--summary-steps=10", "--profile-steps=20:30"),
)
TASKS = ["master/0", "ps/0", "ps/1", "worker/0"]


@pytest.fixture(scope="module", autouse=True)
def tasks_are_forks(forks):
    """The clusters here start their tasks without loading TensorFlow each time."""
    with tasks_started_by(forks.start):
        yield


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> pathlib.Path:
    """The output folder of the cluster's training."""
    return tmp_path_factory.mktemp("trained") / "output"


@pytest.fixture(scope="module")
def ended(tmp_path_factory, output) -> ClusterOfProcesses:
    """A cluster of the shape that the UAI article's TF_CONFIG has, after its end."""
    folder = tmp_path_factory.mktemp("cluster")
    data = program.make_records(folder / "records", 200)
    folders = (f"--data-dir={data}", f"--output-dir={output}")
    # A proxy where nobody listens: tasks talk to each other directly.
    proxy = {"http_proxy": f"http://127.0.0.1:{free_ports(1)[0]}"}
    with cluster(folder, num_ps=2, num_workers=1, variables=proxy) as tasks:
        tasks.start("ps/0", "ps/1")  # without data, and without a flag
        tasks.start("master/0", "worker/0", more=[*SETTINGS, *folders])
        tasks.wait()
        return tasks


def test_the_cluster_trains_to_its_last_step_and_the_result_tells_of_it(ended, output):
    result = json.loads((output / "result.json").read_text())
    metrics, steps = result["figures"], result["figures"]["global_step"]
    assert steps == 100
    assert metrics["examples_seen"] == 40 * steps
    assert result["status"] == "completed"
    assert result["history"]["validation"][-1]["step"] == steps
    assert result["cluster"] == (
        "master/0 of 2 trainers and 2 parameter servers, synchronous, 2 of 2 gradients an update, "
        "40 images a global step"
    )
    assert metrics["own_images_per_sec"] > 0


def test_the_chief_alone_writes_metrics_and_the_profile(ended, output):
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    found = [(row["split"], row["step"]) for row in rows]
    assert sorted(found) == [
        ("eval", json.loads((output / "best" / "best.json").read_text())["step"]),
        *(("train", step) for step in (1, *range(10, 101, 10))),
        ("validation", 50),
        ("validation", 100),
    ]
    assert ended.output("master/0").count("profile of steps 20 to 30: ") == 1
    assert "profile of steps " not in ended.output("worker/0")
    assert len(list(output.glob("train/plugins/profile/*/*.xplane.pb"))) == 1


def test_the_documents_name_every_metric_of_a_cluster(ended, output):
    result = json.loads((output / "result.json").read_text())
    columns = {**result["history"]["train"][-1], **result["history"]["validation"][-1]}
    unused = ["augmented_accuracy"]
    assert check_fields("docs/outputs.md", "metrics.jsonl", columns) == ([], unused)


def test_every_task_ends_with_exit_code_0_within_10_seconds_and_nothing_listens_afterwards(
    ended, output
):
    codes = {label: process.returncode for label, process in ended.processes.items()}
    assert codes == dict.fromkeys(TASKS, 0)
    assert ended.listening() == []
    last = pathlib.Path(f"{checkpoints.latest(str(output))}.index").stat().st_mtime
    seconds = {label: at - last for label, at in ended.ended_at.items()}
    assert sorted(seconds) == TASKS
    assert max(seconds.values()) < 10.0, seconds


def test_each_trainer_says_which_one_it_is(ended):
    for task in ("master/0", "worker/0"):
        assert f"\n{task} of 2 trainers and 2 parameter servers, " in ended.output(task)


def test_a_task_that_is_not_in_the_cluster_is_refused_before_tensorflow_loads(
    tmp_path, monkeypatch
):
    loaded = tmp_path / "path" / "tensorflow.py"
    loaded.parent.mkdir()
    loaded.write_text("raise SystemExit('TensorFlow was loaded')")
    monkeypatch.setenv("PYTHONPATH", str(loaded.parent))
    of_ps = {"cluster": {"master": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 2}}
    done = program.run(cwd=tmp_path, tf_config=json.dumps(of_ps))
    assert done.stderr.startswith("error: this task is ps/2, which is not in the cluster: master ")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
