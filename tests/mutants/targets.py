"""The tests of each module; only these run against a mutant of the module.

Test files that only use the module in passing are left out: a whole training that fails somewhere
does not test a rule, and takes minutes.
"""

_STEP = (
    "tests/cifar10/step/test_update.py",
    "tests/cifar10/step/test_training_step.py",
    "tests/cifar10/step/test_replicated_steps.py",
)
_REFERENCE = "tests/reference/test_training_step.py"

TARGETS: dict[str, tuple[str, ...]] = {
    "cifar10/models/__init__.py": (
        "tests/cifar10/models/test_registry.py",
        "tests/cifar10/models/test_models.py",
    ),
    "cifar10/models/fastnet.py": (
        "tests/cifar10/models/test_fastnet.py",
        "tests/cifar10/models/test_models.py",
        _REFERENCE,
    ),
    "cifar10/models/mlp.py": ("tests/cifar10/models/test_models.py", _REFERENCE),
    "cifar10/models/resnet.py": ("tests/cifar10/models/test_models.py", _REFERENCE),
    "cifar10/ops/layers.py": ("tests/cifar10/ops/test_layers.py", _REFERENCE),
    "cifar10/step/gradients.py": ("tests/cifar10/step/test_gradients.py", *_STEP),
    "cifar10/optim/optimizers.py": (
        "tests/cifar10/optim/test_optimizers.py",
        "tests/cifar10/step/test_update.py",
    ),
    "cifar10/optim/muon.py": ("tests/cifar10/optim/test_muon.py", _REFERENCE),
    "cifar10/optim/lookahead.py": (
        "tests/cifar10/optim/test_lookahead.py",
        "tests/cifar10/step/test_update.py",
    ),
    "cifar10/config/rates.py": ("tests/cifar10/config/test_rates.py",),
    "cifar10/optim/learning_rate.py": ("tests/cifar10/optim/test_learning_rate.py",),
    "cifar10/schedules.py": (
        "tests/cifar10/test_schedules.py",
        "tests/cifar10/optim/test_learning_rate.py",
    ),
    "cifar10/input/augment.py": ("tests/cifar10/input/test_augment.py",),
    "cifar10/step/training_step.py": _STEP,
    "cifar10/step/metrics.py": ("tests/cifar10/step/test_metrics.py",),
    "cifar10/step/losses.py": ("tests/cifar10/step/test_losses.py",),
    "launch/supervise/progress_watch.py": ("tests/launch/supervise/test_supervisor.py",),
    "launch/supervise/ending.py": ("tests/launch/supervise/test_supervisor.py",),
    "launch/supervise/settling.py": ("tests/launch/supervise/test_settling.py",),
    "launch/supervise/supervisor.py": ("tests/launch/supervise/test_supervisor.py",),
    "launch/record/outcome.py": ("tests/launch/record/test_outcome.py",),
}
