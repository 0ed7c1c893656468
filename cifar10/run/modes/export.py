"""SavedModel: raw uint8 images or PNG/JPEG bytes in, classes and probabilities out."""

import dataclasses
import functools
import time
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.host.console import say
from cifar10.input.decode import decode_batch
from cifar10.output import checkpoints
from cifar10.run.job import Job, start_job
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.step.model_fn import model_fn

EXPORT_DIR = "export"
_PART = ".part"  # what is being written
IMAGES_SIGNATURE, ENCODED_SIGNATURE = "serving_default", "encoded"


def export_mode(config: TrainConfig) -> None:
    """The mode: exports the best checkpoint."""
    checkpoint = checkpoints.find(config)
    say(f"export: {export(start_job(config), checkpoint)}")


def export(job: Job, checkpoint: str) -> str:
    """Writes a checkpoint as a SavedModel that needs none of this code.

    Signatures, both with outputs `classes` (string [N]), `class_ids` (int64 [N]) and
    `probabilities` (float32 [N, 10]):
      serving_default: `images` uint8 [N, 32, 32, 3];
      encoded: `bytes` string [N], PNG or JPEG; other sizes than 32x32 are resampled.

    Args:
      job: the model.
      checkpoint: its weights.

    Returns:
      The folder, `export/SECONDS` in the output folder; it appears whole.
    """
    parent = tf.io.gfile.join(job.config.output_place, EXPORT_DIR)
    folder = _free_folder(parent)
    part = tf.io.gfile.join(parent, _PART)
    if tf.io.gfile.exists(part):  # of an export that was killed
        tf.io.gfile.rmtree(part)
    with (
        clear_errors(job.config),
        tf.Graph().as_default(),
        tf.Session(config=job.plan.session_config) as session,
    ):
        tf.train.create_global_step()
        signatures = _build(_portable(job))
        tf.train.Saver().restore(session, checkpoint)
        builder = tf.saved_model.Builder(part)
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.tag_constants.SERVING], signatures, strip_default_attrs=True
        )
        builder.save()
    tf.io.gfile.rename(part, folder)
    return folder


def _portable(job: Job) -> Job:
    """One tower, in the layout and type that every device has, bound to no device."""
    plan = dataclasses.replace(
        job.plan,
        tower_devices=("",),
        variable_devices=("",),
        data_format="channels_last",
        compute_dtype=tf.float32,
    )
    return dataclasses.replace(job, plan=plan, params=dataclasses.replace(job.params, plan=plan))


def _build(job: Job) -> dict[str, Any]:
    images = tf.placeholder(tf.uint8, [None, HEIGHT, WIDTH, CHANNELS], "images")
    encoded = tf.placeholder(tf.string, [None], "bytes")
    # One set of weights for both: the second call reuses the variables of the first.
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        run = functools.partial(_outputs, job)
        return {
            IMAGES_SIGNATURE: tf.saved_model.predict_signature_def({"images": images}, run(images)),
            ENCODED_SIGNATURE: tf.saved_model.predict_signature_def(
                {"bytes": encoded}, run(decode_batch(encoded))
            ),
        }


def _outputs(job: Job, images: Any) -> dict[str, Any]:
    predictions = model_fn(images, None, tf.estimator.ModeKeys.PREDICT, job.params).predictions
    ids = predictions["classes"]
    return {
        "classes": tf.gather(tf.constant(job.class_names), ids),
        "class_ids": ids,
        "probabilities": predictions["probabilities"],
    }


def _free_folder(parent: str) -> str:
    """A folder named by the time, as TensorFlow Serving expects: the highest number is newest."""
    stamp = int(time.time())
    while tf.io.gfile.exists(tf.io.gfile.join(parent, str(stamp))):
        stamp += 1
    return str(tf.io.gfile.join(parent, str(stamp)))
