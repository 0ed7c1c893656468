"""Every command of README.md is run by a test, and the quick ones by the tests here.

README.zh.md, its translation, has the same code blocks, so the same tests stand for its commands.

A test has the mark `readme` with a command of README.md, and runs that command, which the fixture
`readme_command` gives it. Fixtures make small versions of what the command needs, e.g. an archive
or a trained network, and flags that shorten the run are appended.
"""

import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cifar10 import schema
from cifar10.config.train_config import TrainConfig
from cifar10.settings import settings_of
from tests import readme, shell
from tests.launch.launcher import assert_nothing_left

# These commands run the test suites, so no test can run them; CI runs exactly these.
RUN_BY_CI = ("make check", "make test", "make test-cpus", "make test-system")

PREPARE = ".venv/bin/python -m data_prep --source cifar-10-python.tar.gz"
TRAIN = ".venv/bin/python cifar10_main.py --train-batch-size=128"

# A network and a run that take seconds.
SAME_NETWORK = "--num-layers 8"
SMALL = f"{SAME_NETWORK} --train-steps 4"


def test_every_command_of_the_readme_is_run(root: Path) -> None:
    in_readme = set(readme.commands((root / "README.md").read_text(encoding="utf-8")))
    run = set(readme.marked_commands(root / "tests")) | set(RUN_BY_CI)
    assert in_readme - run == set(), "mark a test with the command: @pytest.mark.readme(...)"
    assert run - in_readme == set(), "no longer in README.md"


def test_ci_runs_the_suites_in_the_readmes_words(root: Path) -> None:
    lines = (root / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make")] == list(RUN_BY_CI)


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_readmes_links_lead_somewhere(root: Path, name: str) -> None:
    files = {link.partition("#")[0] for link in readme.links((root / name).read_text("utf-8"))}
    assert {"docs/pictures/report.png", "docs/recipes.md", "LICENSE"} <= files
    assert {file for file in files if not (root / file).exists()} == set()


def test_the_chinese_readme_has_the_same_code_blocks_and_links(root: Path) -> None:
    english = (root / "README.md").read_text(encoding="utf-8")
    chinese = (root / "README.zh.md").read_text(encoding="utf-8")
    assert readme.blocks(chinese) == readme.blocks(english)
    # Each links to the other. The order of the links may differ, as that of the sentences does.
    english_links, chinese_links = readme.links(english), readme.links(chinese)
    english_links.remove("README.zh.md")
    chinese_links.remove("README.md")
    assert sorted(chinese_links) == sorted(english_links)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with an archive and its records."""
    workspace = shell.make_workspace(tmp_path_factory.mktemp("readme"))
    _write_archive(workspace / "cifar-10-python.tar.gz", images_per_batch=100)
    shell.run(PREPARE, workspace)
    return workspace


@pytest.fixture(scope="module")
def trained(prepared: Path) -> Path:
    """The workspace with a trained network, too."""
    shell.run(f"{TRAIN} {SMALL}", prepared)
    return prepared


@pytest.mark.readme(".venv/bin/python -m data_prep download --out .")
def test_download_asks_for_the_published_archive(tmp_path: Path, readme_command: str) -> None:
    workspace = shell.make_workspace(tmp_path)
    with _server_without_files() as url:
        command = f"{readme_command} --url {url}"
        stderr = shell.run(command, workspace, env={"NO_PROXY": "*"}, exit_code=1).stderr
    assert f"{url}cifar-10-python.tar.gz: the server answers 404 Not Found" in stderr


@pytest.mark.readme(".venv/bin/python -m data_prep --source cifar-10-python.tar.gz")
def test_an_archive_becomes_records(prepared: Path, readme_command: str) -> None:
    assert readme_command == PREPARE
    assert (prepared / "data" / schema.MANIFEST_NAME).exists()


@pytest.mark.readme(".venv/bin/python -m data_prep verify data")
def test_verify_reads_every_record(prepared: Path, readme_command: str) -> None:
    # There are six files of 100 images each.
    assert "data: 600 records are undamaged" in shell.run(readme_command, prepared).stdout


@pytest.mark.system
@pytest.mark.readme(".venv/bin/python -m data_prep show data")
def test_show_draws_images_into_grid_png(prepared: Path, readme_command: str) -> None:
    shell.run(readme_command, prepared)
    with Image.open(prepared / "grid.png") as picture:
        assert picture.format == "PNG"


@pytest.mark.system
@pytest.mark.readme(".venv/bin/python cifar10_main.py --train-batch-size=128")
def test_training_writes_what_the_readme_promises(trained: Path, readme_command: str) -> None:
    assert readme_command == TRAIN
    output = trained / "output"
    assert (output / "result.json").exists()
    assert (output / "report.html").exists()
    assert (output / "best").is_dir()
    assert list((output / "export").iterdir())


@pytest.mark.system
@pytest.mark.readme(".venv/bin/python cifar10_main.py --recipe resnet20 --output-dir resnet20")
def test_the_resnet20_recipe_trains_to_its_end(trained: Path, readme_command: str) -> None:
    assert "completed" in shell.run(f"{readme_command} --train-steps 2", trained).stdout
    assert (trained / "resnet20" / "result.json").exists()


@pytest.mark.system
@pytest.mark.readme(".venv/bin/python cifar10_main.py --recipe fast --output-dir fast")
def test_the_fast_recipe_trains_to_its_end(trained: Path, readme_command: str) -> None:
    shown = shell.run(f"{readme_command} --train-batch-size 16 --train-steps 2", trained).stdout
    assert "with test-time augmentation, completed" in shown
    assert (trained / "fast" / "result.json").exists()


@pytest.mark.system
@pytest.mark.readme(".venv/bin/python cifar10_main.py --mode evaluate")
def test_evaluate_reports_accuracy(trained: Path, readme_command: str) -> None:
    assert "accuracy" in shell.run(f"{readme_command} {SAME_NETWORK}", trained).stdout.lower()


@pytest.mark.system
@pytest.mark.readme(".venv/bin/python cifar10_main.py --mode predict cat.png")
def test_predict_names_the_image(trained: Path, readme_command: str) -> None:
    Image.new("RGB", (schema.WIDTH, schema.HEIGHT), "tan").save(trained / "cat.png")
    assert "cat.png" in shell.run(f"{readme_command} {SAME_NETWORK}", trained).stdout


@pytest.mark.system
@pytest.mark.readme(".venv/bin/python cifar10_main.py --mode export")
def test_export_writes_another_saved_model(trained: Path, readme_command: str) -> None:
    before = len(list((trained / "output" / "export").iterdir()))
    shell.run(f"{readme_command} {SAME_NETWORK}", trained)
    assert len(list((trained / "output" / "export").iterdir())) == before + 1


@pytest.mark.system
@pytest.mark.readme(
    ".venv/bin/python -m launch up --on local --workers 1 --ps 1 -- --train-batch-size=128"
)
def test_a_cluster_on_this_machine_trains_to_its_end(trained: Path, readme_command: str) -> None:
    state = trained / "state"
    command = f"{readme_command} {SMALL} --output-dir clustered 2>&1"
    shown = shell.run(command, trained, env={"XDG_STATE_HOME": str(state)}).stdout
    assert (trained / "clustered" / "result.json").exists()
    assert "[worker/0 localhost] " in shown
    assert shown.splitlines()[-1] == "master/0 is done"
    (run,) = state.glob("**/run.json")
    assert_nothing_left(run.parent.name)


@pytest.mark.readme(".venv/bin/python -m launch plan --hosts ip0,ip1 -- --train-batch-size=128")
def test_the_plan_shows_every_tasks_tf_config(tmp_path: Path, readme_command: str) -> None:
    shown = shell.run(readme_command, shell.make_workspace(tmp_path)).stdout
    assert shown.count("TF_CONFIG") == 4
    assert '"worker": ["ip1:2222"]' in shown


@pytest.mark.system
@pytest.mark.readme(".venv/bin/tensorboard --logdir output")
def test_tensorboard_reads_the_output(trained: Path, readme_command: str) -> None:
    # --inspect reads the same files and ends, whereas the server would go on.
    assert "loss" in shell.run(f"{readme_command} --inspect", trained).stdout


@pytest.mark.readme(".venv/bin/python cifar10_main.py --help")
def test_help_names_the_flags_that_people_use(tmp_path: Path, readme_command: str) -> None:
    shown = shell.run(readme_command, shell.make_workspace(tmp_path)).stdout
    common = [one.flag for one in settings_of(TrainConfig).values() if one.common]
    assert [flag for flag in common if flag not in shown and flag != "--images"] == []
    assert "--help-all" in shown


@pytest.mark.readme(".venv/bin/python -m data_prep --help")
def test_data_prep_help_names_its_source(tmp_path: Path, readme_command: str) -> None:
    assert "--source" in shell.run(readme_command, shell.make_workspace(tmp_path)).stdout


@contextmanager
def _server_without_files() -> Iterator[str]:
    """Answers every request with 404; yields its URL."""

    class NotFound(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def _write_archive(path: Path, images_per_batch: int) -> None:
    """Writes an archive in the published format, with few images."""
    rng = np.random.default_rng(0)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            labels = [i % schema.NUM_CLASSES for i in range(images_per_batch)]
            pixels = rng.integers(0, 256, (images_per_batch, schema.IMAGE_BYTES), np.uint8)
            content = pickle.dumps({b"data": pixels, b"labels": labels}, protocol=3)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
