"""The notebook runs in a kernel, and MLflow takes a run as docs/outputs.md says."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from data_prep import cli
from tests.cifar10 import program
from tests.documents import code_blocks
from tests.outside import snippets

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="packages are for Python 3.11"),
]
HERE = pathlib.Path(__file__).parent
EXECUTE = """
import nbclient, nbformat
notebook = nbformat.read("examples/cifar10.ipynb", 4)
(cell,) = (cell for cell in notebook.cells if "EPOCHS =" in cell.source)
cell.source = cell.source.replace("EPOCHS = 5", "EPOCHS = 2")
client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": "examples"}})
nbformat.write(client.execute(), "done.ipynb")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("python")
    words = ["--source", "synthetic", "--synthetic-size", "1000", "--out", str(folder / "data")]
    assert cli.main(words) == 0
    return folder


def test_the_notebook_trains_plots_predicts_and_compares(root, folder):
    (folder / "examples").mkdir()
    shutil.copy(root / "examples/cifar10.ipynb", folder / "examples")
    python = snippets.python_with(HERE / "notebook.txt", folder / "kernel")
    subprocess.run(
        [python, "-c", EXECUTE],
        cwd=folder,
        env={**program.environment(), "PYTHONPATH": str(root)},
        check=True,
        timeout=600,
    )
    cells = json.loads((folder / "done.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    compared = "".join(outputs[-1]["text"]).splitlines()
    assert compared[0].startswith("momentum   eval accuracy ")
    assert compared[1].startswith("muon       eval accuracy ")
    assert compared[2:] == ["optimizer             momentum    muon"]


def test_mlflow_takes_the_settings_and_the_curves(folder):
    words = ("--model=mlp", "--train-steps=20", "--train-batch-size=50", "--summary-steps=5")
    assert program.run(*words, cwd=folder).returncode == 0
    python = snippets.python_with(HERE / "mlflow.txt", folder / "mlflow")
    (code,) = code_blocks("docs/outputs.md", "MLflow", "python")
    snippets.run_python(code, folder, python)
    (run,) = folder.glob("mlruns/0/*/params/model")
    assert run.read_text() == "mlp"
    rows = list(map(json.loads, (folder / "output/metrics.jsonl").read_text().splitlines()))
    for split, name in (("train", "loss"), ("validation", "accuracy"), ("eval", "accuracy")):
        logged = (run.parents[1] / "metrics" / split / name).read_text().splitlines()
        points = [(int(step), float(value)) for _, value, step in map(str.split, logged)]
        assert points == [(row["step"], row[name]) for row in rows if row["split"] == split]
