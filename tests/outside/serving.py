"""A stand-in for TensorFlow Serving: its folder layout, its REST API's paths and row format.

The package registries do not have the server. Its behaviour is documented:
https://www.tensorflow.org/tfx/serving/api_rest ("Specifying input tensors in row format",
"Encoding binary values") and https://www.tensorflow.org/tfx/serving/serving_config (versions).
"""

import base64
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_METHOD = "tensorflow/serving/predict"


class Served:
    """The newest version of a model below a base path, loaded as the server loads it.

    Args:
      base_path: folder with a numbered folder for each version.

    Attributes:
      version: the highest version number; folders with other names are ignored.
    """

    def __init__(self, base_path: Path) -> None:
        self.version = max(int(path.name) for path in base_path.iterdir() if path.name.isdigit())
        folder = base_path / str(self.version)
        assert (folder / "saved_model.pb").is_file()
        assert (folder / "variables" / "variables.index").is_file()
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph)
        with self._graph.as_default():
            loaded = tf.compat.v1.saved_model.loader.load(self._session, ["serve"], str(folder))
        self._signatures = loaded.signature_def

    def predict(self, body: str) -> str:
        """Answers the body of a POST to /v1/models/NAME:predict."""
        request = json.loads(body)
        signature = self._signatures[request.get("signature_name", "serving_default")]
        assert signature.method_name == _METHOD
        # With a single input, an instance is its value; with several it would be a JSON object.
        ((_, tensor),) = signature.inputs.items()
        kind = tf.as_dtype(tensor.dtype).as_numpy_dtype  # of strings: objects
        rows = np.array([_value(one) for one in request["instances"]], kind)
        names = {key: output.name for key, output in signature.outputs.items()}
        found = self._session.run(names, {tensor.name: rows})
        sizes = {len(value) for value in found.values()}
        assert sizes == {len(rows)}, "in row format, every output has a row an instance"
        return json.dumps({"predictions": [_row(found, row) for row in range(len(rows))]})

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[int]:
        """Answers POST requests to /v1/models/NAME:predict, at the port of loopback it yields."""
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8")
                found = self.path == f"/v1/models/{name}:predict"
                answer = served.predict(body) if found else json.dumps({"error": "Not Found"})
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(answer.encode())

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

    def close(self) -> None:
        """Closes the model's session."""
        self._session.close()


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
