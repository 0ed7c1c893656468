"""What a run goes on with."""

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.input.records import open_records
from cifar10.run.resume import step_of_end
from tests.unprivileged import open_folder, unprivileged


def test_a_worker_that_may_not_read_the_folder_of_the_chief_does_not_know_the_end(tutorial_data):
    jobs = {"master": ("a:1",), "worker": ("b:1",)}
    cluster = Cluster(jobs, "worker", 0, has_evaluator=False, source="TF_CONFIG")
    records = open_records(str(tutorial_data))
    with open_folder() as folder:
        (folder / "output").mkdir(0)
        with unprivileged():
            assert step_of_end(TrainConfig(output_dir=f"{folder}/output"), cluster, records) is None
