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

import tensorflow as tf


def predict(base_path: Path, body: str) -> str:
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
            self.wfile.write(predict(base_path, body).encode())

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
