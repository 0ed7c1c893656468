"""The classic multi-tower Estimator in a hundred lines, on the records that data_prep writes.

    python -m data_prep --source synthetic --out data
    python examples/minimal.py --data-dir data --towers 2

Each tower computes the gradients of its part of the batch, their mean updates the shared variables,
and train_and_evaluate does the rest. docs/model_fn.md continues from here: it says what the
pipeline does differently, and why.
"""

import argparse
import os

# TensorFlow reads it when it loads: oneDNN, also on CPUs where it is off by default.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import tensorflow.compat.v1 as tf


def input_fn(split, params):
    """Returns batches of images, float32 [N, 32, 32, 3] in [-1, 1], and labels, int64 [N]."""

    def parse(serialized):
        image, label = (tf.io.FixedLenFeature([], dtype) for dtype in (tf.string, tf.int64))
        record = tf.io.parse_example(serialized, {"image": image, "label": label})
        pixels = tf.reshape(tf.io.decode_raw(record["image"], tf.uint8), [-1, 3, 32, 32])
        images = tf.cast(tf.transpose(pixels, [0, 2, 3, 1]), tf.float32) / 127.5 - 1
        return images, record["label"]

    files = tf.io.gfile.glob(f"{params['data_dir']}/{split}*.tfrecords")
    if not files:
        raise SystemExit(f"error: no {split} records in {params['data_dir']}; data_prep makes them")
    data = tf.data.TFRecordDataset(files)
    if split == "train":  # Shuffle before repeat, so that each epoch sees every image once.
        data = data.shuffle(50_000).repeat()
    return data.batch(params["train_batch_size"]).map(parse).prefetch(2)


def network(images, training):
    """Computes logits, float32 [N, 10], from images, float32 [N, 32, 32, 3]."""
    x = images
    for filters in (32, 64, 128):
        x = tf.layers.conv2d(x, filters, 3, padding="same", use_bias=False)
        x = tf.nn.relu(tf.layers.batch_normalization(x, momentum=0.9, training=training))
        x = tf.layers.max_pooling2d(x, 2, 2)
    return tf.layers.dense(tf.reduce_mean(x, [1, 2]), 10)


def average_gradients(towers):
    """Averages each variable's gradient over the towers' lists of (gradient, variable)."""
    return [
        (tf.add_n([gradient for gradient, _ in pairs]) / len(pairs), pairs[0][1])
        for pairs in zip(*towers)
    ]


def model_fn(features, labels, mode, params):
    """Builds the graph of a mode; in training, splits the batch over `params["towers"]` towers."""
    if mode != tf.estimator.ModeKeys.TRAIN:
        logits = network(features, training=False)
        classes = tf.argmax(logits, axis=1)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"classes": classes})
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        metrics = {"accuracy": tf.metrics.accuracy(labels, classes)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    step = tf.train.get_global_step()
    rate = tf.train.cosine_decay(params["learning_rate"], step, params["train_steps"])
    optimizer = tf.train.MomentumOptimizer(rate, 0.9)
    losses, gradients = [], []
    parts = zip(tf.split(features, params["towers"]), tf.split(labels, params["towers"]))
    gpus = len(tf.config.list_physical_devices("GPU"))
    for tower, (images, classes) in enumerate(parts):
        device = f"/gpu:{tower % gpus}" if gpus else "/cpu:0"
        # The first tower creates the variables, the others reuse them.
        with tf.device(device), tf.variable_scope(tf.get_variable_scope(), reuse=tower > 0):
            logits = network(images, training=True)
            losses.append(tf.losses.sparse_softmax_cross_entropy(classes, logits))
            gradients.append(optimizer.compute_gradients(losses[-1]))
        if tower == 0:  # Only the first tower updates the moving statistics.
            statistics = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(statistics):
        train_op = optimizer.apply_gradients(average_gradients(gradients), step)
    return tf.estimator.EstimatorSpec(mode, loss=tf.add_n(losses) / len(losses), train_op=train_op)


def main():
    """Trains, evaluates each checkpoint, and prints the accuracy of the last one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--output-dir", default="output-minimal")
    parser.add_argument("--towers", type=int, default=2)
    parser.add_argument("--train-batch-size", type=int, default=128)
    parser.add_argument("--train-steps", type=int, default=400)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    flags = parser.parse_args()
    if flags.train_batch_size % flags.towers:
        parser.error("--train-batch-size must be a multiple of --towers, so that each has a part")
    tf.logging.set_verbosity(tf.logging.INFO)
    run_config = tf.estimator.RunConfig(flags.output_dir, save_checkpoints_steps=200)
    estimator = tf.estimator.Estimator(model_fn, config=run_config, params=vars(flags))
    # Estimator passes its params to an input_fn that has such an argument.
    train_spec = tf.estimator.TrainSpec(lambda params: input_fn("train", params), flags.train_steps)
    eval_spec = tf.estimator.EvalSpec(
        lambda params: input_fn("eval", params), steps=None, throttle_secs=0
    )
    metrics, _ = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
    print(f"eval accuracy {metrics['accuracy']:.4f} at step {metrics['global_step']}")


if __name__ == "__main__":
    main()
