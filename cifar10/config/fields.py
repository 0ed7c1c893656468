"""The settings of a run. Standard library only.

`ConfigFields` defines the name, type, default, range, help text and aliases of each setting. The
settings of a single model or optimizer are defined in its module.
`cifar10.config.checks` refuses values and combinations that are not allowed,
`cifar10.config.train_config` applies these checks, `cifar10.config.flags` makes the command line
from the settings, and `result.json` records their values.
"""

import dataclasses
import math
import os
import posixpath
import typing
from typing import Any, ClassVar, Optional

from cifar10 import models, optim, schedules, schema
from cifar10.config.done import NOTHING_DONE, Done
from cifar10.registry import own_settings
from cifar10.settings import setting

MODES = ("train_and_evaluate", "evaluate", "predict", "export")
MODES_THAT_EVALUATE = ("train_and_evaluate", "evaluate")
MODES_WITH_KERNELS = MODES_THAT_EVALUATE  # that may use `cifar10.ops.kernels`
PRECISIONS = ("fp32", "bf16", "fp16")
CROP_FILLS = ("zeros", "reflect")
FLIPS = ("random", "alternating")
BATCH_NORMS = ("tower", "sync", "off")
JOB_NAMES = ("ps", "worker", "master", "chief", "evaluator")
REPLICATIONS = ("between-graph", "in-graph")
TRANSFERS = ("fp32", "bf16")
REDUCTIONS = ("cpu", "nccl")
KERNELS = ("auto", "own", "pairs", "tensorflow")

_TRAINING = {"mode": MODES[:1]}
_NORMALISED = {"model": "normalises", "batch_norm": ("tower", "sync")}
_DISTORTED = {"use_distortion_for_training": True}

DEFAULT_TRAIN_STEPS = 80_000
MOST_SUMMARY_STEPS = 100  # between two rows of the curves, unless --summary-steps is given


_Own: Any = own_settings(models.REGISTRY, optim.REGISTRY)


@dataclasses.dataclass(frozen=True)
class ConfigFields(_Own):  # type: ignore[misc]  # mypy does not know the bases.
    """The settings of a `TrainConfig`, unchecked; None means unset.

    Attributes:
      given: names of the settings that the command line gives, whatever their values.
    """

    # No field, as it is no setting: two configurations with the same settings are equal.
    given: ClassVar[frozenset[str]] = frozenset()

    mode: str = setting("train_and_evaluate", "what to do", group="job", choices=MODES)
    recipe: Optional[str] = setting(
        None,
        "settings that belong together, by name or in a file; flags and --config beat them, "
        "--print-recipe shows them",
        group="job",
    )
    images: tuple[str, ...] = setting(
        (), "image files, folders of them or patterns for --mode predict", group="job"
    )
    json: bool = setting(
        False,
        "--mode predict prints a JSON object a line for each image file",
        group="job",
        needs={"mode": ("predict",)},
    )
    checkpoint: Optional[str] = setting(
        None,
        "checkpoint to evaluate, predict with or export (default: the best one in --output-dir)",
        group="job",
        needs={"mode": MODES[1:]},
        instead="training continues by itself, and --init-checkpoint starts it from the weights of "
        "another run",
    )
    init_checkpoint: Optional[str] = setting(
        None,
        "start training from the weights of this checkpoint, or of the best or else newest one in "
        "this folder; steps, optimizer and schedule begin anew. A run that has a checkpoint of its "
        "own continues from that",
        group="job",
        needs=_TRAINING,
        instead="name the checkpoint by --checkpoint",
    )
    max_minutes: Optional[float] = setting(
        None,
        "end training after this many minutes, then evaluate as usual; schedules go by images, so "
        "the learning rate may still be high",
        group="job",
        above=0,
    )
    early_stopping_epochs: Optional[float] = setting(
        None,
        "end training when the validation accuracy has not risen for so many epochs; the best "
        "checkpoint counts. Validations come with checkpoints: --checkpoint-steps",
        group="job",
        above=0,
    )
    stop_at_accuracy: Optional[float] = setting(
        None,
        "end training when the validation accuracy reaches this fraction, e.g. 0.9",
        group="job",
        above=0,
    )
    verbose: bool = setting(False, "show TensorFlow's own log lines", group="job")

    data_dir: str = setting(
        schema.DEFAULT_DATA_DIR, "folder of TFRecords; anything tf.io.gfile opens", group="places"
    )
    output_dir: str = setting(
        "output",
        "checkpoints, result.json, report.html; anything tf.io.gfile opens",
        group="places",
        aliases=("job-dir",),
    )
    log_dir: Optional[str] = setting(
        None, "TensorBoard event files (default: --output-dir)", group="places"
    )
    work_dir: Optional[str] = setting(
        None,
        "folder that relative paths start from (default: the current folder)",
        group="places",
    )

    model: str = setting("resnet", "model family", group="model", choices=models.NAMES)
    batch_norm: str = setting(
        "tower",
        "statistics of one tower's images, of all of a process's towers (sync), or no "
        "normalisation",
        group="model",
        choices=BATCH_NORMS,
        needs={"model": "normalises"},
    )
    batch_norm_decay: float = setting(
        0.997,
        "decay of the moving statistics",
        group="model",
        at_least=0,
        below=1,
        needs=_NORMALISED,
    )
    batch_norm_epsilon: float = setting(
        1e-5, "added to the variance", group="model", above=0, needs=_NORMALISED
    )

    train_steps: Optional[int] = setting(
        None,
        f"global step to train to (default: {DEFAULT_TRAIN_STEPS:,})",
        group="training",
        at_least=1,
    )
    train_epochs: Optional[float] = setting(
        None, "passes over the training split, instead of --train-steps", group="training", above=0
    )
    train_batch_size: int = setting(
        128, "images per step, split over the towers", group="training", at_least=1
    )
    eval_batch_size: int = setting(100, "images a step of evaluation", group="training", at_least=1)
    optimizer: str = setting("momentum", "update rule", group="training", choices=optim.NAMES)
    learning_rate: Optional[float] = setting(
        None,
        "highest learning rate (default: fits model, optimizer and the images of a global step; "
        "0.1 for a resnet and 128 images)",
        group="training",
        above=0,
    )
    learning_rate_batch: Optional[int] = setting(
        None,
        "images a global step that --learning-rate is for; with others it scales in proportion "
        "(default: a given --learning-rate does not scale)",
        group="training",
        at_least=1,
    )
    schedule: str = setting(
        "cosine",
        schedules.described(),
        group="training",
        choices=schedules.NAMES,
    )
    warmup_epochs: Optional[float] = setting(
        None,
        "epochs over which the learning rate rises from 0 (default: 50 steps, fewer of "
        "shallow ResNets, but at most a quarter of the run)",
        group="training",
        at_least=0,
    )
    weight_decay: float = setting(
        2e-4, "decay of the kernels, in the optimizer", group="training", at_least=0
    )
    decay_biases: bool = setting(
        False,
        "decay biases and normalisation too, not the kernels alone",
        group="training",
        needs={"weight_decay": True},
    )
    norm_bias_rate: float = setting(
        1.0,
        "learning rate of normalisation's offsets, as a multiple of the others'",
        group="training",
        at_least=0,
        needs={"model": "normalises", "optimizer": "follows_scale"},
    )
    label_smoothing: float = setting(
        0.0,
        "share of a label that is spread over all classes",
        group="training",
        at_least=0,
        below=1,
    )
    lookahead_steps: int = setting(
        0,
        "steps between resets of the weights to their moving average; 0: no average",
        group="training",
        at_least=0,
    )
    use_distortion_for_training: bool = setting(
        True, "random crops and flips of the training images", group="training"
    )
    crop_padding: int = setting(
        4,
        "pixels that a random crop may shift an image",
        group="training",
        at_least=0,
        below=schema.HEIGHT,
        needs=_DISTORTED,
    )
    crop_fill: str = setting(
        "zeros",
        "what the shift uncovers: black, or the image mirrored",
        group="training",
        choices=CROP_FILLS,
        needs={**_DISTORTED, "crop_padding": True},
    )
    flip: str = setting(
        "random",
        "left to right: every time at random, or by turns (alternating): each image every second "
        "epoch, half of them in the first",
        group="training",
        choices=FLIPS,
        needs=_DISTORTED,
    )
    cutout: int = setting(
        0,
        "side of a square cut out of training images, pixels",
        group="training",
        at_least=0,
        at_most=schema.HEIGHT,
        needs=_DISTORTED,
    )
    seed: int = setting(1, "same seed, same run", group="training", at_least=0, below=2**31)
    seeds: Optional[str] = setting(
        None,
        "train with each of these seeds in turn, 1,2,3, each in a folder seed-N of --output-dir, "
        "and print means and deviations",
        group="training",
        needs=_TRAINING,
        instead="name the folder of one seed, such as --output-dir output/seed-1",
    )
    test_time_augmentation: bool = setting(
        False,
        "at the end, also the accuracy where the least certain quarter of each batch gets the mean "
        "answer to mirrored and shifted views",
        group="training",
        needs={"mode": MODES_THAT_EVALUATE},
    )

    num_gpus: Optional[int] = setting(
        None,
        "GPUs to use (default: all there are)",
        group="devices",
        at_least=0,
        aliases=("num-gpu",),
    )
    num_towers: Optional[int] = setting(
        None, "towers (default: one a GPU, or one a CPU core)", group="devices", at_least=1
    )
    variable_strategy: str = setting(
        "CPU",
        "where variables live; GPU spreads them over the GPUs by bytes",
        group="devices",
        choices=("CPU", "GPU"),
    )
    gradient_reduction: Optional[str] = setting(
        None,
        "where a process sums its towers' gradients (default: nccl with several GPUs, else cpu)",
        group="devices",
        choices=REDUCTIONS,
    )
    precision: str = setting(
        "fp32", "arithmetic of convolutions and matrices", group="devices", choices=PRECISIONS
    )
    kernels: str = setting(
        "auto",
        "convolutions and activations of training and evaluation on a CPU; auto: our own where "
        "they are compiled and fit, else TensorFlow's; own: our own, or an error; pairs: likewise, "
        "but training multiplies pairs of bfloat16s, which rounds more (only in bf16, where auto "
        "does so if the CPU can, unless it has AMX); tensorflow: TensorFlow's",
        group="devices",
        choices=KERNELS,
    )
    data_format: Optional[str] = setting(
        None,
        "layout of images (default: what is fastest on the device)",
        group="devices",
        choices=("channels_last", "channels_first"),
        needs={"model": "convolves"},
    )
    num_intra_threads: Optional[int] = setting(
        None,
        "threads inside an op; 0: TensorFlow chooses (default: fits the towers)",
        group="devices",
        at_least=0,
        at_most=1024,
    )
    num_inter_threads: Optional[int] = setting(
        None,
        "ops run in parallel; 0: TensorFlow chooses (default: fits the towers)",
        group="devices",
        at_least=0,
        at_most=1024,
    )
    log_device_placement: bool = setting(False, "print each op's device", group="devices")

    ps_hosts: Optional[str] = setting(
        None, "parameter servers, host:port,host:port; instead of TF_CONFIG", group="cluster"
    )
    worker_hosts: Optional[str] = setting(
        None, "workers, host:port,host:port; the first one is the master", group="cluster"
    )
    job_name: Optional[str] = setting(
        None, "this process's job in those lists", group="cluster", choices=JOB_NAMES
    )
    task_index: Optional[int] = setting(
        None, "this process's place in its job's list, from 0", group="cluster", at_least=0
    )
    sync: bool = setting(
        True,
        "workers' gradients are averaged into one update; false: each is applied at once, to "
        "weights that others may have changed since",
        group="cluster",
    )
    num_workers: Optional[int] = setting(
        None,
        "tasks that train, as in tensorflow/models' cifar10_estimator; the cluster says how many "
        "there are, so it is only compared with that",
        group="cluster",
        at_least=1,
    )
    replicas_to_aggregate: Optional[int] = setting(
        None,
        "gradients that a synchronous update waits for; the other replicas are backups "
        "(default: those of all replicas)",
        group="cluster",
        at_least=1,
        needs={"replication": ("between-graph",), "sync": True},
    )
    replication: str = setting(
        "between-graph",
        "each worker runs its own graph, or the master runs all of them (in-graph)",
        group="cluster",
        choices=REPLICATIONS,
    )
    ps_transfer: str = setting(
        "fp32", "type of weights and gradients on the wire", group="cluster", choices=TRANSFERS
    )
    cluster_timeout: float = setting(
        300.0, "how long to wait for a task that is missing, seconds", group="cluster", above=0
    )
    stall_timeout: float = setting(
        600.0,
        "time limit for a step, a save or a batch of an evaluation, seconds; 0: none",
        group="cluster",
        at_least=0,
    )
    check_address: bool = setting(
        True,
        "check that this task's own address is of this machine; false for port forwarding",
        group="cluster",
    )

    checkpoint_steps: Optional[int] = setting(
        None,
        "steps between checkpoints, each followed by validation (default: an epoch, or a 500th of "
        "the run if that is longer)",
        group="reporting",
        at_least=1,
    )
    keep_checkpoints: int = setting(
        2, "latest checkpoints to keep, beside the best", group="reporting", at_least=1
    )
    log_steps: Optional[int] = setting(
        None,
        "steps between progress lines (default: chosen by speed)",
        group="reporting",
        at_least=1,
    )
    summary_steps: Optional[int] = setting(
        None,
        "steps between rows of TensorBoard's curves and of metrics.jsonl (default: a hundredth of "
        f"the run, at most {MOST_SUMMARY_STEPS})",
        group="reporting",
        at_least=1,
    )
    profile_steps: Optional[str] = setting(
        None,
        "steps to profile, 100:110, both included: a trace for TensorBoard, and a table of the "
        "ops that take the most time",
        group="reporting",
        needs=_TRAINING,
    )

    def is_set(self, name: str) -> bool:
        """Returns whether the command line gives a setting, or it differs from its default."""
        return name in self.given or bool(getattr(self, name) != FIELDS[name].default)

    @property
    def model_title(self) -> str:
        """The model's name as users read it, e.g. `ResNet-44 v1`."""
        return models.find(self.model).title(self)

    def place(self, path: str) -> str:
        """Resolves `~` and, against --work-dir, a relative path; URLs stay unchanged.

        Shells leave the `~` of `--output-dir=~/a` to the program.
        """
        if "://" in path:
            return path
        path = os.path.expanduser(path)
        if self.work_dir is None:
            return path
        return posixpath.join(os.path.expanduser(self.work_dir), path)

    @property
    def data_place(self) -> str:
        """The path of --data-dir, resolved against --work-dir."""
        return self.place(self.data_dir)

    @property
    def output_place(self) -> str:
        """The path of --output-dir, resolved against --work-dir."""
        return self.place(self.output_dir)

    @property
    def log_place(self) -> str:
        """The path of --log-dir, resolved against --work-dir; --output-dir's if it is unset."""
        return self.output_place if self.log_dir is None else self.place(self.log_dir)

    @property
    def seed_list(self) -> list[int]:
        """The seeds of --seeds, in order; that of --seed alone if it is unset."""
        return [self.seed] if self.seeds is None else [int(one) for one in self.seeds.split(",")]

    @property
    def profile_window(self) -> Optional[tuple[int, int]]:
        """The first and the last step of --profile-steps; None if it is unset."""
        if self.profile_steps is None:
            return None
        first, _, last = self.profile_steps.partition(":")
        return int(first), int(last)

    def log_folder(self, split: str) -> str:
        """Returns the folder for TensorBoard's events of a split, after which a run is named."""
        return posixpath.join(self.log_place, split)

    def steps_between_rows(self, total_steps: int) -> int:
        """Returns the steps between rows of TensorBoard's curves: --summary-steps, or what fits.

        Args:
          total_steps: global step at which training ends.
        """
        if self.summary_steps is not None:
            return self.summary_steps
        return min(MOST_SUMMARY_STEPS, math.ceil(total_steps / 100))

    def total_steps(
        self,
        num_examples: int,
        examples_per_step: Optional[int] = None,
        done: Done = NOTHING_DONE,
    ) -> int:
        """Returns the global step at which training ends.

        Args:
          num_examples: number of training images.
          examples_per_step: training images in a global step; None: --train-batch-size.
          done: the training before, whose steps may have had other numbers of images.
        """
        if self.train_epochs is not None:
            left = self.train_epochs * num_examples - done.examples_seen
            steps = left / (examples_per_step or self.train_batch_size)
            # Without rounding, 2.2 epochs of 45,000 images in batches of 100 would be
            # 990.0000000000001 steps, which `ceil` would raise to 991.
            return max(1, done.step + max(0, math.ceil(round(steps, 6))))
        return DEFAULT_TRAIN_STEPS if self.train_steps is None else self.train_steps


def _kind(annotation: Any) -> Any:
    arguments = [one for one in typing.get_args(annotation) if one is not type(None)]
    return arguments[0] if arguments else annotation


# Every setting, those of single models and optimizers last, and the type of its values: int for
# Optional[int].
FIELDS = {
    field.name: field
    for field in sorted(
        dataclasses.fields(ConfigFields),
        key=lambda one: one.name not in ConfigFields.__annotations__,
    )
}
KINDS = {name: _kind(hint) for name, hint in typing.get_type_hints(ConfigFields).items()}
