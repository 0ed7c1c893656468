"""The settings of a run, and what they need of each other. Standard library only.

A field says what a setting is: its name, type, default, range and help. The flags, the checks,
files of settings and recipes follow from that. What a setting needs of others is a row of `NEEDS`.
The settings of a single model or optimizer are in its module.
"""

import dataclasses
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Optional

from cifar10 import models, optim, schema
from cifar10.config.registry import own_settings
from cifar10.config.settings import setting
from cifar10.config.settings_file import recipe_names
from cifar10.optim import schedules

REGISTRIES: Mapping[str, Any] = {"model": models.REGISTRY, "optimizer": optim.REGISTRY}
MODES = ("train_and_evaluate", "evaluate", "predict", "export")
MODES_WITH_KERNELS = MODES[:2]  # that may use `cifar10.kernels`, and that evaluate
DEFAULT_TRAIN_STEPS = 80_000
MOST_SUMMARY_STEPS = 100  # between two rows of the curves, unless --summary-steps is given

GROUPS = ("job", "places", "model", "training", "devices", "cluster", "reporting")  # of --help
_job, _folder, _model, _training, _device, _cluster, _report = (
    partial(setting, group=group) for group in GROUPS
)
_folder, _addresses = partial(_folder, metavar="DIR"), partial(_cluster, metavar="HOST:PORT,...")

_SHARE: dict[str, Any] = {"at_least": 0, "below": 1}
_THREADS: dict[str, Any] = {"at_least": 0, "at_most": 1024}


def window(text: str) -> Optional[tuple[int, int]]:
    """Returns the first and the last step that --profile-steps names; None if it is wrong."""
    found = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", text, re.ASCII)
    return (int(found[1]), int(found[2])) if found and 1 <= int(found[1]) <= int(found[2]) else None


# mypy does not know the bases.
@dataclasses.dataclass(frozen=True)
class ConfigFields(*own_settings(*REGISTRIES.values())):  # type: ignore[misc]
    """The settings of a `TrainConfig`, unchecked; None means unset."""

    mode: str = _job("what to do", "train_and_evaluate", choices=MODES, common=True)
    recipe: Optional[str] = _job(
        "settings that belong together (see --print-recipe)", choices=recipe_names(), common=True
    )
    images: tuple[str, ...] = _job(
        "image files, or folders of them, for --mode predict", (), metavar="FILE", common=True
    )
    json: bool = _job("--mode predict prints a line of JSON for each image", False, common=True)
    checkpoint: Optional[str] = _job(
        "checkpoint to evaluate, predict with or export (default: the best one in --output-dir)",
        metavar="PATH",
        instead="training continues by itself, or starts from --init-checkpoint",
        common=True,
    )
    init_checkpoint: Optional[str] = _job(
        "start a new run from the weights of this checkpoint, or of the best or else newest one in "
        "this folder; steps, optimizer and schedule begin anew",
        metavar="PATH",
        instead="name the checkpoint by --checkpoint",
    )
    dry_run: bool = _job("say what training would do, and how long it takes", False, common=True)
    max_minutes: Optional[float] = _job(
        "end training after this many minutes, then evaluate as usual", above=0, common=True
    )
    early_stopping_epochs: Optional[float] = _job(
        "end training when the validation accuracy has not risen for so many epochs", above=0
    )
    stop_at_accuracy: Optional[float] = _job(
        "end training when the validation accuracy reaches this fraction, e.g. 0.9",
        form=("a fraction above 0 and at most 1 (0.9 for 90 %)", lambda value: 0 < value <= 1),
    )
    verbose: bool = _job("show TensorFlow's own log lines", False, common=True)

    data_dir: str = _folder(
        "folder of TFRecords; anything tf.io.gfile opens", schema.DEFAULT_DATA_DIR, common=True
    )
    output_dir: str = _folder(
        "checkpoints, result.json, report.html; anything tf.io.gfile opens",
        "output",
        aliases=("job-dir",),
        common=True,
    )
    log_dir: Optional[str] = _folder("TensorBoard event files (default: --output-dir)", common=True)
    work_dir: Optional[str] = _folder("where relative paths start (default: the current folder)")

    model: str = _model("model family", "resnet", choices=models.NAMES, common=True)
    batch_norm: str = _model(
        "statistics of one tower's images, or no normalisation", "tower", choices=("tower", "off")
    )
    batch_norm_decay: float = _model("decay of the moving statistics", 0.997, **_SHARE)
    batch_norm_epsilon: float = _model("added to the variance", 1e-5, above=0)

    train_steps: Optional[int] = _training(
        f"global step to train to (default: {DEFAULT_TRAIN_STEPS:,})", at_least=1, common=True
    )
    train_epochs: Optional[float] = _training(
        "passes over the training split, instead of --train-steps", above=0, common=True
    )
    train_batch_size: int = _training(
        "images per step, split over the towers", 128, at_least=1, common=True
    )
    eval_batch_size: int = _training("images a step of evaluation", 100, at_least=1)
    optimizer: str = _training(
        "update rule",
        "momentum",
        choices=optim.NAMES,
        instead="--optimizer nesterov, with another --output-dir, trains every model",
        common=True,
    )
    learning_rate: Optional[float] = _training(
        "highest learning rate (default: fits model, optimizer and the images of a global step; "
        "0.1 for a resnet and 128 images)",
        above=0,
        common=True,
    )
    learning_rate_batch: Optional[int] = _training(
        "images a global step that --learning-rate is for; it scales with others", at_least=1
    )
    schedule: str = _training(schedules.described(), "cosine", choices=schedules.NAMES, common=True)
    warmup_epochs: Optional[float] = _training(
        "epochs in which the rate rises from 0 (default: at most 50 steps)", at_least=0, common=True
    )
    weight_decay: float = _training("decay of the kernels", 2e-4, at_least=0, common=True)
    decay_biases: bool = _training("decay biases and normalisation, too", False)
    norm_bias_rate: float = _training(
        "learning rate of normalisation's offsets, as a multiple of the others'", 1.0, at_least=0
    )
    label_smoothing: float = _training(
        "share of a label that is spread over all classes", 0.0, **_SHARE, common=True
    )
    lookahead_steps: int = _training(
        "steps between resets of the weights to their moving average; 0: no average", 0, at_least=0
    )
    use_distortion_for_training: bool = _training("random crops and flips", True)
    crop_padding: int = _training(
        "pixels that a random crop may shift an image", 4, at_least=0, below=schema.HEIGHT
    )
    crop_fill: str = _training(
        "what the shift uncovers: black or the mirrored image",
        "zeros",
        choices=("zeros", "reflect"),
    )
    flip: str = _training(
        "left to right: at random, or each image every second epoch, half of them in the first",
        "random",
        choices=("random", "alternating"),
    )
    cutout: int = _training(
        "pixels, side of a square cut out", 0, at_least=0, at_most=schema.HEIGHT, common=True
    )
    seed: int = _training("same seed, same run", 1, at_least=0, below=2**31, common=True)
    test_time_augmentation: bool = _training(
        "also the accuracy with several views of the least certain images", False, common=True
    )

    num_gpus: Optional[int] = _device(
        "GPUs to use (default: all there are)", at_least=0, aliases=("num-gpu",), common=True
    )
    num_towers: Optional[int] = _device(
        "towers (default: one a GPU, or one a CPU core)", at_least=1, common=True
    )
    variable_strategy: str = _device(
        "where variables live; GPU: over all GPUs, by bytes", "CPU", choices=("CPU", "GPU")
    )
    gradient_reduction: Optional[str] = _device(
        "where a process sums its towers' gradients (default: nccl with several GPUs, else cpu)",
        choices=("cpu", "nccl"),
    )
    precision: str = _device(
        "type of convolutions and matrices", "fp32", choices=("fp32", "bf16", "fp16"), common=True
    )
    kernels: str = _device(
        "convolutions and activations on a CPU; auto: our own where they fit, in bf16 with pairs "
        "of bfloat16s where the CPU has them without AMX; own: our own without pairs, or an error",
        "auto",
        choices=("auto", "own", "tensorflow"),
    )
    data_format: Optional[str] = _device(
        "layout of images (default: what is fastest on the device)",
        choices=("channels_last", "channels_first"),
    )
    num_intra_threads: Optional[int] = _device(
        "threads inside an op; 0: TensorFlow chooses (default: fits the towers)", **_THREADS
    )
    num_inter_threads: Optional[int] = _device(
        "ops run in parallel; 0: TensorFlow chooses (default: fits the towers)", **_THREADS
    )
    log_device_placement: bool = _device("print each op's device", False)

    ps_hosts: Optional[str] = _addresses("parameter servers, instead of TF_CONFIG")
    worker_hosts: Optional[str] = _addresses("workers; the first one is the chief")
    job_name: Optional[str] = _cluster(
        "this process's job", choices=("ps", "worker", "master", "chief", "evaluator")
    )
    task_index: Optional[int] = _cluster("this process's index in its job, from 0", at_least=0)
    sync: bool = _cluster(
        "average the workers' gradients; false: apply each at once", True, common=True
    )
    num_workers: Optional[int] = _cluster(
        "tasks that train, as in the tutorial; only compared with the cluster", at_least=1
    )
    replicas_to_aggregate: Optional[int] = _cluster(
        "gradients that a synchronous update waits for (default: those of all replicas)", at_least=1
    )
    replication: str = _cluster(
        "each worker runs its own graph, or the chief runs all of them (in-graph)",
        "between-graph",
        choices=("between-graph", "in-graph"),
    )
    ps_transfer: str = _cluster(
        "type of weights and gradients on the wire", "fp32", choices=("fp32", "bf16")
    )
    cluster_timeout: float = _cluster("longest wait for a missing task, seconds", 300.0, above=0)
    stall_timeout: float = _cluster(
        "time limit for a step, save or evaluated batch, seconds; 0: none", 600.0, at_least=0
    )

    checkpoint_steps: Optional[int] = _report(
        "steps between checkpoints, each followed by validation (default: an epoch, or a 500th of "
        "the run if that is longer)",
        at_least=1,
        common=True,
    )
    keep_checkpoints: int = _report(
        "latest checkpoints to keep, beside the best", 2, at_least=1, common=True
    )
    log_steps: Optional[int] = _report(
        "steps between progress lines (default: chosen by speed)", at_least=1
    )
    summary_steps: Optional[int] = _report(
        "steps between rows of TensorBoard's curves and of metrics.jsonl (default: a hundredth of "
        f"the run, at most {MOST_SUMMARY_STEPS})",
        at_least=1,
    )
    profile_steps: Optional[str] = _report(
        "steps to profile, 100:110, both included: a trace for TensorBoard's profile plugin",
        form=("the first and the last step in order, from 1 on: 100:110", window),
    )


_DISTORTED = {"use_distortion_for_training": True}
NORMALISED = {"model": "normalises", "batch_norm": ("tower",)}

# What settings need of others to have an effect: the values that those must have. True: any but 0
# and false. For a model or an optimizer, a word is the attribute that it must have. A setting of a
# single model or optimizer needs that as well, and `Setting.needs` adds to the table from outside.
NEEDS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(
        ("init_checkpoint", "dry_run", "profile_steps", "replication", "ps_transfer"),
        {"mode": MODES[:1]},
    ),
    **dict.fromkeys(("kernels", "test_time_augmentation"), {"mode": MODES_WITH_KERNELS}),
    "json": {"mode": ("predict",)},
    "checkpoint": {"mode": MODES[1:]},
    "data_format": {"model": "convolves"},
    "batch_norm": {"model": "normalises"},
    **dict.fromkeys(("batch_norm_decay", "batch_norm_epsilon"), NORMALISED),
    "norm_bias_rate": {"model": "normalises", "optimizer": "follows_scale"},
    "decay_biases": {"weight_decay": True},
    **dict.fromkeys(("crop_padding", "flip", "cutout"), _DISTORTED),
    "crop_fill": {**_DISTORTED, "crop_padding": True},
    "replicas_to_aggregate": {"replication": ("between-graph",), "sync": True},
}
ENDS = ("train_steps", "train_epochs")  # alternatives: each says when training ends
