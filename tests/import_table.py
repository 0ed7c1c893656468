"""What the packages and modules directly inside `PACKAGES` may import from each other.

`tests/test_imports.py` enforces this table, and docs/architecture.md shows it.
"""

from dataclasses import dataclass

STDLIB, NO_TENSORFLOW, ANYTHING = "standard library", "anything but TensorFlow", "anything"
LATE = "anything; TensorFlow in functions only"
PACKAGES = ("cifar10", "data_prep", "launch")


@dataclass(frozen=True)
class Entry:
    """A package or module, and what it may import.

    Attributes:
      name: full name, e.g. `cifar10.input`.
      job: one-line description of what it is for.
      ours: full names of those that it may import.
      world: what it may import from outside this project, e.g. STDLIB.
    """

    name: str
    job: str
    ours: tuple[str, ...] = ()
    world: str = STDLIB

    @property
    def package(self) -> str:
        """The name of the top-level package that it belongs to."""
        return self.name.split(".")[0]


def _entries(package: str, *rows: tuple[str, str, str, str]) -> tuple[Entry, ...]:
    """Makes entries from rows of (name, job, names that it may import, `Entry.world`)."""
    return tuple(
        Entry(
            f"{package}.{name}", job, tuple(f"{package}.{target}" for target in ours.split()), world
        )
        for name, job, ours, world in rows
    )


_CIFAR10 = _entries(
    "cifar10",
    ("__init__", "the names of the Python API", "api", STDLIB),
    ("schema", "facts about the data, once: counts, names, shapes", "", STDLIB),
    ("image_decoding", "an image file → pixels of a record", "schema", NO_TENSORFLOW),
    ("errors", "errors of users, failures, signals", "", STDLIB),
    ("tf_internals", "private TensorFlow and Estimator API", "", ANYTHING),
    ("models", "images → logits, and what fits each model", "config schema", NO_TENSORFLOW),
    ("host", "this machine: CPU, this process, files, locks", "errors", ANYTHING),
    (
        "kernels",
        "custom ops: C++, and the Python that builds and loads it",
        "errors host",
        ANYTHING,
    ),
    ("ops", "layers, and the operations below them", "schema kernels", ANYTHING),
    ("optim", "the rate, update rules, averages of weights", "config models ops", ANYTHING),
    (
        "config",
        "settings, their checks, flags, recipes",
        "schema errors models optim",
        NO_TENSORFLOW,
    ),
    ("input", "records → batches of images", "schema image_decoding errors config", ANYTHING),
    ("cluster", "TF_CONFIG or flags → the tasks of a cluster", "errors config optim", STDLIB),
    (
        "output",
        "what an output folder holds; progress",
        "schema errors image_decoding models config host",
        ANYTHING,
    ),
    (
        "report",
        "report.html of a run, and the page that compares runs",
        "image_decoding",
        NO_TENSORFLOW,
    ),
    (
        "step",
        "a batch → new weights, over towers and processes",
        "schema errors tf_internals models config host input kernels ops optim cluster",
        ANYTHING,
    ),
    (
        "guard",
        "what watches a run: other tasks, folders, stalls, signals",
        "errors tf_internals config host input cluster output step",
        ANYTHING,
    ),
    (
        "run",
        "what each task does, from its start to its end",
        "schema image_decoding errors models config host input cluster output report optim step "
        "guard",
        ANYTHING,
    ),
    (
        "train",
        "what a chief and a worker do, from records to results",
        "errors schema config host input cluster output guard run step",
        ANYTHING,
    ),
    (
        "dry_run",
        "what a training would do, by some of its steps",
        "schema config host input output guard run step train",
        ANYTHING,
    ),
    (
        "tf_errors",
        "TensorFlow's errors → one line each",
        "tf_internals errors config host input",
        ANYTHING,
    ),
    (
        "main",
        "command line → exit code",
        "errors config host cluster run train dry_run tf_errors",
        LATE,
    ),
    ("__main__", "python -m cifar10", "host main", STDLIB),
    ("api", "a Python API", "errors image_decoding config cluster host input run train main", LATE),
)

_DATA_PREP = (
    *_entries(
        "data_prep",
        ("__init__", "the package's name", "", STDLIB),
        ("errors", "what can be wrong with a source", "", STDLIB),
        ("tfrecord", "images → TFRecords, and back", "", NO_TENSORFLOW),
        (
            "sources",
            "archives, folders, synthetic images → a data set",
            "errors tfrecord",
            NO_TENSORFLOW,
        ),
        (
            "folder",
            "a folder of records, complete or absent",
            "errors sources tfrecord",
            NO_TENSORFLOW,
        ),
        ("download", "fetches the published archives", "errors sources folder", NO_TENSORFLOW),
        ("sheet", "records → a contact sheet", "errors tfrecord folder", NO_TENSORFLOW),
        ("commands", "the commands", "sources folder download sheet", NO_TENSORFLOW),
        ("cli", "command line → exit code", "errors commands", NO_TENSORFLOW),
        ("__main__", "python -m data_prep", "cli", STDLIB),
    ),
)

_LAUNCH = _entries(
    "launch",
    ("__init__", "the package's name", "", STDLIB),
    ("errors", "errors of users, hosts that fail", "", STDLIB),
    ("agent", "runs on the hosts: starts, watches, ends tasks", "", STDLIB),
    ("screen", "what a user sees of a running job", "", NO_TENSORFLOW),
    ("cluster", "command line and files → a Cluster and its tasks", "errors", NO_TENSORFLOW),
    ("record", "what is kept of a run; its result", "errors cluster", NO_TENSORFLOW),
    ("connect", "connections to the hosts' agents", "errors agent cluster", NO_TENSORFLOW),
    (
        "supervise",
        "follows tasks under agents to their end",
        "errors agent screen cluster record connect",
        NO_TENSORFLOW,
    ),
    (
        "backends",
        "where a job runs",
        "errors agent screen cluster record connect supervise",
        NO_TENSORFLOW,
    ),
    (
        "verbs",
        "command line → a command → exit code",
        "errors screen cluster record connect supervise backends",
        NO_TENSORFLOW,
    ),
    ("__main__", "python -m launch", "verbs", STDLIB),
)

ENTRIES = (*_CIFAR10, *_DATA_PREP, *_LAUNCH)

# What every package may import: the version, the names of the programs, streams, paths, completion.
COMMON = "cifar10_program"
# What a package may import besides its own modules: data_prep the facts about the data and how
# images are decoded, launch how settings are read.
SHARED = {
    "data_prep": ("cifar10.schema", "cifar10.image_decoding"),
    "launch": ("cifar10.config.settings_file", "cifar10.errors"),
}


def entry_of(module: str) -> Entry:
    """Returns the entry of the package that holds a module, or of the module itself.

    Raises:
      LookupError: the table has none.
    """
    for entry in ENTRIES:
        if module == entry.name or module.startswith(f"{entry.name}."):
            return entry
    raise LookupError(
        f"{module} has no row; add one to tests/import_table.py and docs/architecture.md"
    )
