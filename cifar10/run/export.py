"""The SavedModel of a checkpoint, which needs none of this code, and the mode that writes it."""

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.host.files import require_writable, sync, sync_tree
from cifar10.host.process import log
from cifar10.input.image_files import decode_batch
from cifar10.output import checkpoints, model_settings
from cifar10.output.folders import EXPORT_DIR, PART
from cifar10.run.job import load_model
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.step.model_fn import model_fn
from cifar10.step.params import ModelParams


def export_mode(config: TrainConfig) -> None:
    """Runs the mode: exports the checkpoint of --checkpoint, by default the best one.

    Raises:
      ConfigError: the export cannot be written.
      UserError: there is no complete checkpoint.
    """
    checkpoints.find(config)  # Without one, this mode writes nothing.
    require_writable(tf.io.gfile.join(config.output_path, EXPORT_DIR), "the folder for exports")
    model = load_model(config)
    # Not PART: a start of training removes what it left unfinished, and may be meanwhile.
    folder = checkpoints.with_found(config, lambda path: export(*model, path, ".export-"))
    log(f"export: {folder}")


def export(
    params: ModelParams, class_names: Sequence[str], checkpoint: str, part_name: str = PART
) -> str:
    """Writes a checkpoint as a SavedModel that needs none of this code.

    Signatures, both with outputs `classes` (string [N]), `class_ids` (int64 [N]) and
    `probabilities` (float32 [N, classes]):
      serving_default: `images` uint8 [N, 32, 32, 3];
      encoded: `bytes` string [N], contents of PNG or JPEG files; images of other sizes
        than 32x32 are resized as those of training were.

    Args:
      params: the model's parameters.
      class_names: the classes in the order of the labels.
      checkpoint: the path of the checkpoint with the model's weights.
      part_name: how the name of the folder begins until it is complete.

    Returns:
      The folder, `export/SECONDS` in the output folder, with a higher number than any there; it
      appears only when it is complete.
    """
    parent = str(tf.io.gfile.join(params.config.output_path, EXPORT_DIR))
    part = str(tf.io.gfile.join(parent, f"{part_name}{uuid.uuid4().hex}"))
    try:
        _write(params, class_names, checkpoint, part)
        # TensorFlow Serving uses the highest number: the newest one, even if the clock went back.
        names = [entry.rstrip("/") for entry in tf.io.gfile.listdir(parent)]  # GCS adds slashes.
        after = [int(name) + 1 for name in names if name.isdecimal()]
        folder = str(tf.io.gfile.join(parent, str(max([int(time.time()), *after]))))
        tf.io.gfile.rename(part, folder)
    finally:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.rmtree(part)
    sync(parent)
    return folder


def _write(params: ModelParams, class_names: Sequence[str], checkpoint: str, part: str) -> None:
    """Writes the SavedModel into the new folder `part`, and waits for the disk."""
    with tf.Graph().as_default(), tf.Session(config=params.plan.session_config) as session:
        tf.train.create_global_step()
        signatures = _build(params, class_names)
        tf.train.Saver().restore(session, checkpoint)
        builder, tags = tf.saved_model.Builder(part), [tf.saved_model.tag_constants.SERVING]
        builder.add_meta_graph_and_variables(session, tags, signatures, strip_default_attrs=True)
        builder.save()
    sync_tree(part)


def _build(params: ModelParams, class_names: Sequence[str]) -> dict[str, Any]:
    """Returns the signatures of one tower that is bound to no device, in a layout for all."""
    plan = dataclasses.replace(
        params.plan,
        tower_devices=("",),
        variable_devices=("",),
        data_format="channels_last",
        compute_dtype=tf.float32,
    )
    portable = dataclasses.replace(params, plan=plan)

    def signature(name: str, given: tf.Tensor, images: tf.Tensor) -> Any:
        found = model_fn(images, None, tf.estimator.ModeKeys.PREDICT, portable).predictions
        outputs = {
            "classes": tf.gather(tf.constant(class_names), found["classes"]),
            "class_ids": found["classes"],
            "probabilities": found["probabilities"],
        }
        return tf.saved_model.predict_signature_def({name: given}, outputs)

    images = tf.placeholder(tf.uint8, (None, HEIGHT, WIDTH, CHANNELS), "images")
    encoded = tf.placeholder(tf.string, [None], "bytes")
    decoded = decode_batch(encoded, model_settings.resize_of(params.config))
    # One set of weights for both: the second call reuses the variables of the first.
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return {
            "serving_default": signature("images", images, images),
            "encoded": signature("bytes", encoded, decoded),
        }
