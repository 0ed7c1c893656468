"""Exports a SavedModel, from uint8 images or image files to classes and probabilities."""

import contextlib
import dataclasses
import time
import uuid
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.console import say
from cifar10.host.files import require_writable, sync, sync_tree
from cifar10.input.decode import decode_batch
from cifar10.output import checkpoints, model_settings
from cifar10.run.job import EXPORT_DIR, Job, start_job
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.step.model_fn import model_fn

_PART = ".part"  # how the names of unfinished exports' folders begin
# An export takes seconds: the folder of one that has changed nothing for so long was left behind.
_LEFT_SECS = 3600.0
IMAGES_SIGNATURE, ENCODED_SIGNATURE = "serving_default", "encoded"


def export_mode(config: TrainConfig) -> None:
    """Runs the mode: exports the checkpoint of --checkpoint, by default the best one.

    Raises:
      ConfigError: the export cannot be written.
      UserError: there is no complete checkpoint.
    """
    place, given = config.output_place, config.checkpoint_place
    checkpoint = checkpoints.find(place, given)
    require_writable(
        tf.io.gfile.join(config.output_place, EXPORT_DIR),
        "the folder for exports",
        f"name another --output-dir, and the model by --checkpoint {checkpoint}",
    )
    job = start_job(config)
    say(f"export: {checkpoints.with_found(place, given, lambda one: export(job, one))}")


def export(job: Job, checkpoint: str) -> str:
    """Writes a checkpoint as a SavedModel that needs none of this code.

    Signatures, both with outputs `classes` (string [N]), `class_ids` (int64 [N]) and
    `probabilities` (float32 [N, 10]):
      serving_default: `images` uint8 [N, 32, 32, 3];
      encoded: `bytes` string [N], contents of PNG, JPEG, GIF or BMP files; images of other sizes
        than 32x32 are resized as those of training were.

    Args:
      job: the job whose model is exported.
      checkpoint: the path of the checkpoint with the model's weights.

    Returns:
      The folder, `export/SECONDS` in the output folder, with a higher number than any there; it
      appears only when it is complete.

    Raises:
      UserError: the checkpoint is damaged, or another process has removed what was written.
    """
    parent = tf.io.gfile.join(job.config.output_place, EXPORT_DIR)
    part = _own_part(parent)
    try:
        _write(job, checkpoint, part)
        folder = _give_number(part, parent)
    finally:
        if tf.io.gfile.exists(part):
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(part)
    sync(parent)
    return folder


def _own_part(parent: str) -> str:
    """Makes a folder for this process's unfinished export; removes those of killed processes."""
    part = str(tf.io.gfile.join(parent, f"{_PART}-{uuid.uuid4().hex}"))
    tf.io.gfile.makedirs(part)
    # Only the file system's own times are compared, so the machines' clocks may differ.
    left_before = tf.io.gfile.stat(part).mtime_nsec - int(_LEFT_SECS * 1e9)
    for name in tf.io.gfile.listdir(parent):
        other = tf.io.gfile.join(parent, name)
        # Its process has just finished it, or it is another user's.
        with contextlib.suppress(tf.errors.OpError):
            if name.startswith(_PART) and tf.io.gfile.stat(other).mtime_nsec < left_before:
                tf.io.gfile.rmtree(other)
    return part


def _write(job: Job, checkpoint: str, part: str) -> None:
    """Writes the SavedModel into the folder `part`, which is empty, and waits for the disk.

    Raises:
      UserError: another process has removed what was written.
    """
    with (
        clear_errors(job.config),
        tf.Graph().as_default(),
        tf.Session(config=job.plan.session_config) as session,
    ):
        tf.train.create_global_step()
        signatures = _build(job)
        tf.train.Saver().restore(session, checkpoint)
        builder = tf.saved_model.Builder(part)
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.tag_constants.SERVING], signatures, strip_default_attrs=True
        )
        builder.save()
    if not tf.io.gfile.exists(tf.io.gfile.join(part, "variables", "variables.index")):
        raise UserError(f"another process has removed files of {part}; export again")
    sync_tree(part)


def _give_number(part: str, parent: str) -> str:
    """Renames a finished export to a number, the time; returns its new path.

    TensorFlow Serving uses the highest number: that of the newest, even if the clock went back.
    """
    while True:
        # GCS ends the name of a folder with a slash.
        names = [entry.rstrip("/") for entry in tf.io.gfile.listdir(parent)]
        after = [int(name) + 1 for name in names if name.isdecimal()]
        folder = str(tf.io.gfile.join(parent, str(max([int(time.time()), *after]))))
        try:
            tf.io.gfile.rename(part, folder)
        except tf.errors.OpError:
            if not tf.io.gfile.exists(folder):
                raise
            # Another process has just taken this number.
        else:
            return folder


def _build(job: Job) -> dict[str, Any]:
    """Returns the signatures of one tower that is bound to no device, in a layout for all."""
    plan = dataclasses.replace(
        job.plan,
        tower_devices=("",),
        variable_devices=("",),
        data_format="channels_last",
        compute_dtype=tf.float32,
    )
    params = dataclasses.replace(job.params, plan=plan)

    def signature(name: str, given: tf.Tensor, images: tf.Tensor) -> Any:
        found = model_fn(images, None, tf.estimator.ModeKeys.PREDICT, params).predictions
        outputs = {
            "classes": tf.gather(tf.constant(job.class_names), found["classes"]),
            "class_ids": found["classes"],
            "probabilities": found["probabilities"],
        }
        return tf.saved_model.predict_signature_def({name: given}, outputs)

    images = tf.placeholder(tf.uint8, [None, HEIGHT, WIDTH, CHANNELS], "images")
    encoded = tf.placeholder(tf.string, [None], "bytes")
    decoded = decode_batch(encoded, model_settings.resize_of(job.config))
    # One set of weights for both: the second call reuses the variables of the first.
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return {
            IMAGES_SIGNATURE: signature("images", images, images),
            ENCODED_SIGNATURE: signature("bytes", encoded, decoded),
        }
