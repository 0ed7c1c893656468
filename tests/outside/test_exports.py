"""Other programs read curves, checkpoints and exports of a run, and answer as our modes do."""

import base64
import contextlib
import dataclasses
import http.server
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.cifar10 import program
from tests.cifar10.forks import Forks
from tests.data_prep.made import encode
from tests.documents import FORMATS, code_blocks
from tests.outside import snippets

pytestmark = pytest.mark.system

MODELS = {
    "resnet": (
        *("--model=resnet", "--num-layers=8", "--train-batch-size=50", "--train-steps=60"),
        *("--learning-rate=0.05", "--learning-rate-batch=50"),
    ),
    "fastnet": (
        *("--recipe=fast", "--train-batch-size=50", "--train-steps=40"),
        *("--muon-rate=0.05", "--learning-rate=0.1", "--learning-rate-batch=50"),
    ),
}
SETTINGS = ("--schedule=cosine", "--warmup-epochs=0", "--checkpoint-steps=1000", "--seed=1")
SAVE = "np.save('probabilities.npy', probabilities)\n"
SAVE_VALUES = """
import json
mean = weights["input/channel_mean"].tolist()
found = [rows, mean, int(weights["global_step"]), int(weights["examples_seen"])]
with open("found.json", "w") as file:
    json.dump(found, file)
"""


@dataclasses.dataclass
class Trained:
    """A run's folder, its metrics, and the eval split as a plain script reads it."""

    folder: Path
    metrics: dict[str, float]
    images: np.ndarray  # uint8 [200, 32, 32, 3]
    labels: np.ndarray
    names: list[str]  # of the classes

    @property
    def exports(self) -> Path:
        return self.folder / "output" / "export"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 training, 100 validation and 200 eval images."""
    return program.make_records(tmp_path_factory.mktemp("records") / "data", 1000)


@pytest.fixture(scope="module", params=sorted(MODELS))
def trained(
    request: pytest.FixtureRequest,
    data: Path,
    tmp_path_factory: pytest.TempPathFactory,
    forks: Forks,
) -> Trained:
    folder = tmp_path_factory.mktemp(request.param)
    arguments = (*MODELS[request.param], *SETTINGS, f"--data-dir={data}")
    done = forks.run(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((folder / "output/result.json").read_text())["figures"]
    images, labels = eval_split(data)
    np.save(folder / "images.npy", images)
    names = json.loads((data / "manifest.json").read_text())["class_names"]
    return Trained(folder, metrics, images, labels, names)


def eval_split(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The eval split, by tf.data alone."""
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    records = list(tf.data.TFRecordDataset(str(data / "eval.tfrecords")).as_numpy_iterator())
    fields = tf.io.parse_example(records, features)
    planes = tf.reshape(tf.io.decode_raw(fields["image"], tf.uint8), [-1, 3, 32, 32])
    return tf.transpose(planes, [0, 2, 3, 1]).numpy(), fields["label"].numpy()


def assert_evaluates_alike(probabilities: np.ndarray, trained: Trained) -> None:
    """Accuracy and loss over the whole split are those of our evaluation."""
    assert probabilities.shape == (200, 10)
    accuracy = np.mean(probabilities.argmax(axis=1) == trained.labels)
    loss = -np.mean(np.log(probabilities[np.arange(200), trained.labels]))
    assert accuracy == pytest.approx(trained.metrics["eval_accuracy"], abs=1e-6)
    assert loss == pytest.approx(trained.metrics["eval_loss"], abs=1e-4)
    assert accuracy > 0.2  # Ten classes: it has learnt, and has something to be wrong about.


def assert_answers_alike(probabilities: np.ndarray, trained: Trained) -> None:
    """Each probability is that of the SavedModel."""
    model = tf.saved_model.load(str(next(trained.exports.iterdir())))
    expected = model.signatures["serving_default"](images=tf.constant(trained.images))
    np.testing.assert_allclose(probabilities, expected["probabilities"].numpy(), atol=1e-5)


def snippets_with(text: str) -> list[str]:
    """Returns the Python snippets about exports that contain a text."""
    return [code for code in code_blocks(FORMATS, "Exported models", "python") if text in code]


# A stand-in for TensorFlow Serving, which the package registries do not have: its folder layout,
# its REST API's paths and row format, as https://www.tensorflow.org/tfx/serving/api_rest
# ("Specifying input tensors in row format", "Encoding binary values") and
# https://www.tensorflow.org/tfx/serving/serving_config (versions) document them.


def serve(base_path: Path, body: str) -> str:
    """Answers the body of a POST to /v1/models/NAME:predict by the newest version of a model.

    Args:
      base_path: folder with a numbered folder for each version; others are ignored.
      body: the JSON of the request.
    """
    version = max(int(path.name) for path in base_path.iterdir() if path.name.isdigit())
    request, model = json.loads(body), tf.saved_model.load(str(base_path / str(version)))
    signature = model.signatures[request.get("signature_name", "serving_default")]
    # With a single input, an instance is its value; with several it would be a JSON object.
    ((name, spec),) = signature.structured_input_signature[1].items()
    rows = tf.constant([_value(instance) for instance in request["instances"]], spec.dtype)
    found = {name: output.numpy() for name, output in signature(**{name: rows}).items()}
    sizes = {len(value) for value in found.values()}
    assert sizes == {len(rows)}, "in row format, every output has a row an instance"
    return json.dumps({"predictions": [_row(found, row) for row in range(len(rows))]})


@contextlib.contextmanager
def listening(base_path: Path, name: str) -> Iterator[int]:
    """Answers POST requests to /v1/models/NAME:predict, at the port of loopback it yields."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8")
            assert self.path == f"/v1/models/{name}:predict"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(serve(base_path, body).encode())

        def log_message(self, *_: object) -> None:
            """Keeps requests out of the tests' output."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _value(instance: Any) -> Any:
    if isinstance(instance, dict):
        assert list(instance) == ["b64"]
        return base64.b64decode(instance["b64"], validate=True)
    return instance


def _row(found: dict[str, Any], row: int) -> dict[str, Any]:
    """Returns the prediction of a row by output name; byte strings become text."""
    values = {name: value[row] for name, value in found.items()}
    return {
        name: value.decode("utf-8") if isinstance(value, bytes) else value.tolist()
        for name, value in values.items()
    }


def test_saved_model_cli_shows_and_runs_it(trained):
    (code,) = code_blocks(FORMATS, "Exported models", "bash")[:1]
    shown = snippets.run_shell(code, trained.folder)
    assert "signature_def['serving_default']" in shown
    assert "signature_def['encoded']" in shown
    assert shown.count("Method name is: tensorflow/serving/predict") == 2
    assert re.search(
        r"inputs\['images'\].*\n\s+dtype: DT_UINT8\n\s+shape: \(-1, 32, 32, 3\)", shown
    )
    assert re.search(
        r"outputs\['probabilities'\].*\n\s+dtype: DT_FLOAT\n\s+shape: \(-1, 10\)", shown
    )
    assert_evaluates_alike(np.load(trained.folder / "answers/probabilities.npy"), trained)
    classes = np.load(trained.folder / "answers/classes.npy", allow_pickle=True)  # bytes
    ids = np.load(trained.folder / "answers/class_ids.npy")
    assert [name.decode() for name in classes] == [trained.names[index] for index in ids]


def test_onnxruntime_gives_its_probabilities(trained):
    pytest.importorskip("tf2onnx", reason="requirements-dev.txt has it for Python 3.11 only")
    snippets.run_shell(code_blocks(FORMATS, "Exported models", "bash")[1], trained.folder)
    (code,) = snippets_with("onnxruntime")
    snippets.run_python(code + SAVE, trained.folder)
    probabilities = np.load(trained.folder / "probabilities.npy")
    assert_evaluates_alike(probabilities, trained)
    assert_answers_alike(probabilities, trained)


def test_tensorflow_lite_gives_its_answers_by_its_own_ops_alone(trained):
    convert, ask = snippets_with("tf.lite")
    snippets.run_python(convert, trained.folder)
    code = ask + "probabilities, classes = answers['probabilities'], answers['classes']\n"
    snippets.run_python(code + SAVE + "np.save('classes.npy', classes)\n", trained.folder)
    probabilities = np.load(trained.folder / "probabilities.npy")
    assert_evaluates_alike(probabilities, trained)
    assert_answers_alike(probabilities, trained)
    classes = np.load(trained.folder / "classes.npy", allow_pickle=True)
    expected = [trained.names[index] for index in probabilities.argmax(axis=1)]
    assert [name.decode() for name in classes] == expected
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        tf.lite.experimental.Analyzer.analyze(model_path=str(trained.folder / "model.tflite"))
    ops = set(re.findall(r"Op#\d+ (\w+)\(", shown.getvalue()))
    assert "CONV_2D" in ops
    assert not [op for op in ops if op.startswith("Flex")]


def test_a_plain_script_gives_the_probabilities_of_our_evaluation(trained):
    code = code_blocks(FORMATS, "Exported models", "python")[0]
    code += "probabilities = answers['probabilities'].numpy()\n"
    snippets.run_python(code + SAVE, trained.folder)
    assert_evaluates_alike(np.load(trained.folder / "probabilities.npy"), trained)


def test_tensorflow_serving_answers_the_documented_request_and_rows_of_images(trained):
    (code,) = snippets_with("urllib")
    (trained.folder / "cat.png").write_bytes(encode(Image.fromarray(trained.images[0])))
    with listening(trained.exports, "cifar10") as port:
        assert code.count("localhost:8501") == 1
        code = code.replace("localhost:8501", f"127.0.0.1:{port}")
        code += "json.dump(answer, open('answer.json', 'w'))\n"
        snippets.run_python(code, trained.folder)
    body = json.dumps({"instances": trained.images.tolist()})
    rows = serve(trained.exports, body)
    assert_evaluates_alike(
        np.array([row["probabilities"] for row in json.loads(rows)["predictions"]]), trained
    )
    answer = json.loads((trained.folder / "answer.json").read_text())
    assert sorted(answer) == ["class_ids", "classes", "probabilities"]
    assert answer["classes"] == trained.names[answer["class_ids"]]
    assert len(answer["probabilities"]) == 10


@pytest.mark.parametrize("trained", ["resnet"], indirect=True)
def test_the_pages_snippets_read_a_curve_and_a_checkpoints_values_by_their_names(trained, data):
    (curve,) = code_blocks(FORMATS, "Event files", "python")
    (values,) = code_blocks(FORMATS, "Checkpoints", "python")
    snippets.run_python(curve + values + SAVE_VALUES, trained.folder)
    rows, mean, *counters = json.loads((trained.folder / "found.json").read_text())
    lines = (trained.folder / "output/metrics.jsonl").read_text().splitlines()
    trainings = [row for row in map(json.loads, lines) if row["split"] == "train"]
    assert dict(rows) == pytest.approx({row["step"]: row["loss"] for row in trainings}, rel=1e-5)
    assert mean == pytest.approx(json.loads((data / "manifest.json").read_text())["channel_mean"])
    assert counters == [60, 60 * 50]
