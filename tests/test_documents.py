"""What documents say can be done: README's commands run, links lead somewhere, tests exist.

README.zh.md, the translation, has the same code blocks, so the same tests stand for its commands.
"""

import re
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from cifar10 import schema
from tests import shell
from tests.data_prep import made
from tests.faults.cells import every_cell
from tests.launch.launcher import assert_nothing_left

_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SHELL_BLOCK = re.compile(r"^```(?:bash|sh|shell|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"""(?:\]\(|src=")(?!https?:|#)([^)#"]+)""")
_TEST = re.compile(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`")
_CELL = re.compile(r"`((?:sig|oom|full|readonly|cut|clock|slow)[\w-]*(?:/[\w-]+){3})`")
# Others are run by tests/system/, tests/test_makefile.py and CI.
_RUN_ELSEWHERE = ("make ", "docker ", "mkdir ")

MAIN, LAUNCH = ".venv/bin/python cifar10_main.py", ".venv/bin/python -m launch"
PREP = ".venv/bin/python -m data_prep"
CONVERT, TRAIN = f"{PREP} --source cifar-10-python.tar.gz", f"{MAIN} --train-batch-size=128"
# A network and a run that take seconds.
SAME_NETWORK = "--num-layers 8"
SMALL, SHORT = f"{SAME_NETWORK} --train-steps 4", "--train-batch-size 16 --train-steps 2"
# command: (what is appended to it, what it prints, what is there then)
PREPARING = {
    # The archive that is there is a small one.
    f"{PREP} download --out .": ("|| test $? = 1", "is not the published archive", ""),
    CONVERT: ("", "", "data/manifest.json"),
    f"{PREP} verify data": ("", "data: 120 records are undamaged", ""),
    f"{PREP} show data": ("", "", "grid.png"),
    f"{PREP} --help": ("", "--source", ""),
    f"{MAIN} --help": ("", "--help-all", ""),
    f"{LAUNCH} plan --shell --hosts ip0,ip1 -- --train-batch-size=128": ("", '["ip1:2222"]', ""),
}
TRAINING = {
    TRAIN: (SMALL, "result: output/result.json", "output/report.html"),
    f"{MAIN} --recipe resnet20 --output-dir resnet20": (SHORT, "completed", "resnet20/result.json"),
    f"{MAIN} --recipe fast --output-dir fast": (SHORT, "augmentation, complet", "fast/result.json"),
    f"{MAIN} --mode evaluate": (SAME_NETWORK, "accuracy", ""),
    f"{MAIN} --mode predict cat.png": (SAME_NETWORK, "cat.png", ""),
    f"{MAIN} --mode export": (SAME_NETWORK, "", "output/export"),
    # --inspect reads the same files and ends, whereas the server would go on.
    ".venv/bin/tensorboard --logdir output": ("--inspect", "loss", ""),
    f"{LAUNCH} up --on local --workers 1 --ps 1 -- --train-batch-size=128": (
        f"{SMALL} --output-dir clustered",
        "master/0 is done\n",
        "clustered/result.json",
    ),
}


def pages(root: Path) -> dict[str, str]:
    """Returns every tracked document by its path."""
    names = subprocess.check_output(["git", "ls-files", "*.md"], cwd=root, text=True).split()
    return {name: (root / name).read_text("utf-8") for name in names if (root / name).exists()}


def commands(markdown: str) -> list[str]:
    """Returns the commands of all shell blocks, without comments, with continued lines joined."""
    lines = "".join(_SHELL_BLOCK.findall(markdown)).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip() and line[0] != "#"]


def links(markdown: str) -> list[str]:
    """Returns the files to which links and pictures lead."""
    return _LINK.findall(_BLOCK.sub("", markdown))


def test_every_command_of_the_readme_is_run(root: Path) -> None:
    in_readme = set(commands(pages(root)["README.md"]))
    rest = {command for command in in_readme if not command.startswith(_RUN_ELSEWHERE)}
    assert rest == {*PREPARING, *TRAINING}
    makes = {command for command in in_readme if command.startswith("make ")}
    run_by_ci = {
        line for line in (root / ".ci" / "run").read_text().splitlines() if line.startswith("make")
    }
    assert makes - run_by_ci == {"make demo", "make venv REQUIREMENTS=requirements-gpu.lock"}


def test_links_lead_somewhere(root: Path) -> None:
    found = [(page, link) for page, text in pages(root).items() for link in links(text)]
    assert len(found) > 100
    assert [link for page, link in found if not (root / page).parent.joinpath(link).exists()] == []


def test_the_chinese_readme_has_the_same_code_blocks_and_links(root: Path) -> None:
    english, chinese = pages(root)["README.md"], pages(root)["README.zh.md"]
    assert _BLOCK.findall(chinese) == _BLOCK.findall(english)
    # Each links to the other.
    assert set(links(chinese)) - {"README.md"} == set(links(english)) - {"README.zh.md"}


def test_every_test_and_cell_that_a_promise_names_exists(root: Path) -> None:
    page, file, missing = pages(root)["docs/guarantees.md"], "", []
    for match in _TEST.finditer(page):
        file = match[1] or file  # A name without a file is in the file named before.
        path = root / file
        if not path.exists() or (match[2] and f"def {match[2]}(" not in path.read_text("utf-8")):
            missing.append(match[0])
    assert missing == []
    assert set(_CELL.findall(page)) <= {cell.name for cell in every_cell()}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with an archive, its records, and an image."""
    workspace = shell.make_workspace(tmp_path_factory.mktemp("readme"))
    source = made.python_folder(tmp_path_factory.mktemp("source") / "cifar-10-batches-py")
    made.tar(workspace / "cifar-10-python.tar.gz", source)
    shell.run(CONVERT, workspace)
    Image.new("RGB", (schema.WIDTH, schema.HEIGHT), "tan").save(workspace / "cat.png")
    return workspace


@pytest.fixture(scope="module")
def trained(prepared: Path) -> Path:
    """The workspace with a trained network, too."""
    shell.run(f"{TRAIN} {SMALL}", prepared)
    return prepared


def _run(workspace: Path, command: str, more: str, printed: str, there: str) -> None:
    env = {"XDG_STATE_HOME": str(workspace / "state")}
    shown = shell.run(f"( {command} {more} ) 2>&1", workspace, env=env).stdout
    assert printed in shown
    assert (workspace / there).exists()


@pytest.mark.parametrize("command", PREPARING)
def test_a_command_that_trains_nothing_does_what_the_readme_says(
    prepared: Path, command: str
) -> None:
    _run(prepared, command, *PREPARING[command])


@pytest.mark.system
@pytest.mark.parametrize("command", TRAINING)
def test_a_command_of_training_does_what_the_readme_says(trained: Path, command: str) -> None:
    _run(trained, command, *TRAINING[command])
    for run in (trained / "state").glob("**/run.json"):
        assert_nothing_left(run.parent.name)
