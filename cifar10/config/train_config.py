"""One frozen, validated configuration; the command line is made from it. Standard library only.

`TrainConfig` is the one home of every setting: its name, type, default, help, choices and the other
names it goes by. `cifar10.config.checks` says which values and combinations are refused,
`cifar10.config.flags` makes the command line from it, `result.json` records it.
"""

import dataclasses
import math
import posixpath
from typing import Any, Optional

from cifar10 import schema
from cifar10.config.checks import check_config
from cifar10.config.checks import flag_name as flag_name
from cifar10.config.recipes import RECIPES

MODELS = ("resnet", "resnet_v2", "fastnet", "mlp")
MODES = ("train_and_evaluate", "evaluate", "predict", "export")
PRECISIONS = ("fp32", "bf16", "fp16")
OPTIMIZERS = ("momentum", "nesterov", "adam", "muon")
SCHEDULES = ("staged", "cosine", "linear", "triangular", "constant")
CROP_FILLS = ("zeros", "reflect")
FLIPS = ("random", "alternating")
BATCH_NORMS = ("tower", "sync", "off")
JOB_NAMES = ("ps", "worker", "master", "chief", "evaluator")
REPLICATIONS = ("between-graph", "in-graph")
TRANSFERS = ("fp32", "bf16")
REDUCTIONS = ("cpu", "nccl")
KERNELS = ("auto", "own", "tensorflow")

DEFAULT_NUM_LAYERS = 44
DEFAULT_HIDDEN_UNITS = 100
DEFAULT_TRAIN_STEPS = 80_000


def _flag(
    default: Any,
    text: str,
    *,
    group: str,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that knows its help text, its choices and the other names of its flag."""
    metadata = {"help": text, "group": group, "choices": choices, "aliases": aliases}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run. None means: not set, choose what fits."""

    mode: str = _flag("train_and_evaluate", "what to do", group="job", choices=MODES)
    recipe: Optional[str] = _flag(
        None,
        "settings that belong together; flags beat them, --print-recipe shows them",
        group="job",
        choices=tuple(RECIPES),
    )
    images: tuple[str, ...] = _flag((), "image files for --mode predict", group="job")
    checkpoint: Optional[str] = _flag(
        None,
        "checkpoint to evaluate, predict with or export (default: the best one in --output-dir)",
        group="job",
    )
    max_minutes: Optional[float] = _flag(
        None,
        "end training after this many minutes, then evaluate as usual; schedules go by images, so "
        "the learning rate may still be high",
        group="job",
    )
    verbose: bool = _flag(False, "show TensorFlow's own log lines", group="job")

    data_dir: str = _flag(
        schema.DEFAULT_DATA_DIR, "folder of TFRecords; anything tf.io.gfile opens", group="places"
    )
    output_dir: str = _flag(
        "output",
        "checkpoints, result.json, report.html; anything tf.io.gfile opens",
        group="places",
        aliases=("job-dir",),
    )
    log_dir: Optional[str] = _flag(
        None, "TensorBoard event files (default: --output-dir)", group="places"
    )
    work_dir: Optional[str] = _flag(
        None,
        "folder that relative paths start from (default: the current folder)",
        group="places",
    )

    model: str = _flag("resnet", "model family", group="model", choices=MODELS)
    num_layers: Optional[int] = _flag(
        None, f"layers of a resnet, 6n+2 (default: {DEFAULT_NUM_LAYERS})", group="model"
    )
    hidden_units: Optional[int] = _flag(
        None, f"hidden units of the mlp (default: {DEFAULT_HIDDEN_UNITS})", group="model"
    )
    batch_norm: str = _flag(
        "tower",
        "statistics of one tower's images, of all of a process's towers (sync), or no "
        "normalisation",
        group="model",
        choices=BATCH_NORMS,
    )
    batch_norm_decay: float = _flag(0.997, "decay of the moving statistics", group="model")
    batch_norm_epsilon: float = _flag(1e-5, "added to the variance", group="model")
    residual_scale: Optional[float] = _flag(
        None,
        "first scale of what each block of a resnet adds to its shortcut (default: 1 / the square "
        "root of the blocks of a stage)",
        group="model",
    )
    whitening_bias_epochs: float = _flag(
        3.0, "epochs that the bias of fastnet's first layer trains", group="model"
    )

    train_steps: Optional[int] = _flag(
        None, f"global step to train to (default: {DEFAULT_TRAIN_STEPS:,})", group="training"
    )
    train_epochs: Optional[float] = _flag(
        None, "passes over the training split, instead of --train-steps", group="training"
    )
    train_batch_size: int = _flag(128, "images a step, split over the towers", group="training")
    eval_batch_size: int = _flag(100, "images a step of evaluation", group="training")
    optimizer: str = _flag("momentum", "update rule", group="training", choices=OPTIMIZERS)
    learning_rate: Optional[float] = _flag(
        None,
        "highest learning rate (default: fits model, optimizer and the images of a global step; "
        "0.1 for a resnet and 128 images)",
        group="training",
    )
    learning_rate_batch: Optional[int] = _flag(
        None,
        "images a global step that --learning-rate is for; with others it scales in proportion "
        "(default: a given --learning-rate does not scale)",
        group="training",
    )
    schedule: str = _flag(
        "cosine",
        "cosine and linear: to 0 at the end; triangular: from x.2 up until .23 of the run, then "
        "down to x.07; staged: x1, x.1, x.01, x.002 from epochs 82, 123 and 300, whenever the run "
        "ends",
        group="training",
        choices=SCHEDULES,
    )
    warmup_epochs: Optional[float] = _flag(
        None,
        "epochs over which the learning rate rises from 0 (default: 50 steps, fewer of "
        "shallow ResNets, but at most a quarter of the run)",
        group="training",
    )
    momentum: float = _flag(0.9, "momentum of momentum, nesterov and muon", group="training")
    muon_rate: float = _flag(
        0.24, "highest step of a convolution's kernel in muon, of its length", group="training"
    )
    muon_momentum: float = _flag(0.6, "momentum of those kernels", group="training")
    weight_decay: float = _flag(2e-4, "decay of the kernels, in the optimizer", group="training")
    decay_biases: bool = _flag(
        False, "decay biases and normalisation too, not the kernels alone", group="training"
    )
    norm_bias_rate: float = _flag(
        1.0,
        "learning rate of normalisation's offsets, as a multiple of the others'",
        group="training",
    )
    label_smoothing: float = _flag(
        0.0, "share of a label that is spread over all classes", group="training"
    )
    lookahead_steps: int = _flag(
        0,
        "steps between pulls of the weights to their moving average; 0: no average",
        group="training",
    )
    use_distortion_for_training: bool = _flag(
        True, "random crops and flips of the training images", group="training"
    )
    crop_padding: int = _flag(4, "pixels that a random crop may shift an image", group="training")
    crop_fill: str = _flag(
        "zeros",
        "what the shift uncovers: black, or the image mirrored",
        group="training",
        choices=CROP_FILLS,
    )
    flip: str = _flag(
        "random",
        "left to right: every time at random, or by turns (alternating): each image every second "
        "epoch, half of them in the first",
        group="training",
        choices=FLIPS,
    )
    cutout: int = _flag(0, "side of a square cut out of training images, pixels", group="training")
    seed: int = _flag(1, "same seed, same run", group="training")
    test_time_augmentation: bool = _flag(
        False,
        "at the end, also the accuracy of the mean answer to each image mirrored and shifted",
        group="training",
    )

    num_gpus: Optional[int] = _flag(
        None, "GPUs to use (default: all there are)", group="devices", aliases=("num-gpu",)
    )
    num_towers: Optional[int] = _flag(
        None, "towers (default: one a GPU, or one a CPU core)", group="devices"
    )
    variable_strategy: str = _flag(
        "CPU",
        "where variables live; GPU spreads them over the GPUs by bytes",
        group="devices",
        choices=("CPU", "GPU"),
    )
    gradient_reduction: Optional[str] = _flag(
        None,
        "where a process sums its towers' gradients (default: nccl with several GPUs, else cpu)",
        group="devices",
        choices=REDUCTIONS,
    )
    precision: str = _flag(
        "fp32", "arithmetic of convolutions and matrices", group="devices", choices=PRECISIONS
    )
    kernels: str = _flag(
        "auto",
        "convolutions of training on a CPU: our own where they are compiled and fit, else "
        "TensorFlow's (auto); refused without our own (own); TensorFlow's",
        group="devices",
        choices=KERNELS,
    )
    data_format: Optional[str] = _flag(
        None,
        "layout of images (default: what is fastest on the device)",
        group="devices",
        choices=("channels_last", "channels_first"),
    )
    num_intra_threads: Optional[int] = _flag(
        None,
        "threads inside an op; 0: TensorFlow chooses (default: fits the towers)",
        group="devices",
    )
    num_inter_threads: Optional[int] = _flag(
        None, "ops at once; 0: TensorFlow chooses (default: fits the towers)", group="devices"
    )
    log_device_placement: bool = _flag(False, "print each op's device", group="devices")

    ps_hosts: Optional[str] = _flag(
        None, "parameter servers, host:port,host:port; instead of TF_CONFIG", group="cluster"
    )
    worker_hosts: Optional[str] = _flag(
        None, "workers, host:port,host:port; the first one is the master", group="cluster"
    )
    job_name: Optional[str] = _flag(
        None, "this process's job in those lists", group="cluster", choices=JOB_NAMES
    )
    task_index: Optional[int] = _flag(
        None, "this process's place in its job's list, from 0", group="cluster"
    )
    sync: bool = _flag(
        True,
        "workers' gradients are averaged into one update; false: each is applied at once, to "
        "weights that others may have changed since",
        group="cluster",
    )
    replicas_to_aggregate: Optional[int] = _flag(
        None,
        "gradients that a synchronous update waits for; the other replicas are backups "
        "(default: those of all replicas)",
        group="cluster",
    )
    replication: str = _flag(
        "between-graph",
        "each worker drives itself, or the master drives all of them (in-graph)",
        group="cluster",
        choices=REPLICATIONS,
    )
    ps_transfer: str = _flag(
        "fp32", "type of weights and gradients on the wire", group="cluster", choices=TRANSFERS
    )
    cluster_timeout: float = _flag(
        300.0, "how long to wait for a task that is missing, seconds", group="cluster"
    )
    check_address: bool = _flag(
        True,
        "check that this task's own address is of this machine; false for port forwarding",
        group="cluster",
    )

    checkpoint_steps: Optional[int] = _flag(
        None,
        "steps between checkpoints, each followed by validation (default: an epoch)",
        group="reporting",
    )
    keep_checkpoints: int = _flag(
        2, "latest checkpoints to keep, beside the best", group="reporting"
    )
    log_steps: Optional[int] = _flag(
        None, "steps between progress lines (default: chosen by speed)", group="reporting"
    )
    summary_steps: int = _flag(100, "steps between TensorBoard summaries", group="reporting")

    def __post_init__(self) -> None:
        """Raises ConfigError for a value out of range and for settings that contradict."""
        check_config(self)

    def is_set(self, name: str) -> bool:
        """Whether a setting differs from its default."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return bool(getattr(self, name) != defaults[name])

    @property
    def is_resnet(self) -> bool:
        """Whether --num-layers is for this model."""
        return self.model.startswith("resnet")

    @property
    def layers(self) -> int:
        """Layers of the resnet, default included."""
        return DEFAULT_NUM_LAYERS if self.num_layers is None else self.num_layers

    @property
    def units(self) -> int:
        """Hidden units of the mlp, default included."""
        return DEFAULT_HIDDEN_UNITS if self.hidden_units is None else self.hidden_units

    @property
    def model_title(self) -> str:
        """The model's name for people, e.g. `ResNet-44 v1`."""
        if self.model == "mlp":
            return f"MLP, {self.units} hidden units"
        if self.model == "fastnet":
            return "fastnet"
        return f"ResNet-{self.layers} {'v2' if self.model == 'resnet_v2' else 'v1'}"

    def place(self, path: str) -> str:
        """Resolves a relative path against --work-dir; URLs and absolute paths stay."""
        if self.work_dir is None or "://" in path:
            return path
        return posixpath.join(self.work_dir, path)

    @property
    def data_place(self) -> str:
        """--data-dir, resolved."""
        return self.place(self.data_dir)

    @property
    def output_place(self) -> str:
        """--output-dir, resolved."""
        return self.place(self.output_dir)

    @property
    def log_place(self) -> str:
        """--log-dir, resolved; --output-dir where unset."""
        return self.output_place if self.log_dir is None else self.place(self.log_dir)

    def total_steps(self, num_examples: int, examples_per_step: Optional[int] = None) -> int:
        """The global step at which training ends.

        Args:
          num_examples: training images.
          examples_per_step: images that a global step stands for; None: --train-batch-size.
        """
        if self.train_epochs is not None:
            steps = self.train_epochs * num_examples / (examples_per_step or self.train_batch_size)
            # 2.2 epochs of 45,000 images in batches of 100 are 990 steps, not 990.0000000000001.
            return max(1, math.ceil(round(steps, 6)))
        return DEFAULT_TRAIN_STEPS if self.train_steps is None else self.train_steps
