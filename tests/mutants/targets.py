"""Which tests are meant for which module; a mutant is held against these, and no others.

A test file that only passes by is left out: that a whole training fails somewhere is no test of a
rule, and costs minutes.
"""

_STEP = (
    "tests/cifar10/test_update.py",
    "tests/cifar10/test_training_step.py",
    "tests/cifar10/test_replicated_steps.py",
)
_REFERENCE = "tests/reference/test_training_step.py"

TARGETS: dict[str, tuple[str, ...]] = {
    "cifar10/models/__init__.py": ("tests/cifar10/test_models.py",),
    "cifar10/models/fastnet.py": (
        "tests/cifar10/test_fastnet.py",
        "tests/cifar10/test_models.py",
        _REFERENCE,
    ),
    "cifar10/models/mlp.py": ("tests/cifar10/test_models.py", _REFERENCE),
    "cifar10/models/resnet.py": ("tests/cifar10/test_models.py", _REFERENCE),
    "cifar10/layers.py": ("tests/cifar10/test_layers.py", _REFERENCE),
    "cifar10/update.py": _STEP,
    "cifar10/optimizers.py": ("tests/cifar10/test_optimizers.py", "tests/cifar10/test_update.py"),
    "cifar10/muon.py": ("tests/cifar10/test_muon.py", _REFERENCE),
    "cifar10/lookahead.py": ("tests/cifar10/test_lookahead.py", "tests/cifar10/test_update.py"),
    "cifar10/rates.py": ("tests/cifar10/test_rates.py",),
    "cifar10/schedules.py": ("tests/cifar10/test_schedules.py",),
    "cifar10/augment.py": ("tests/cifar10/test_augment.py",),
    "cifar10/training_step.py": _STEP,
    "cifar10/metrics.py": ("tests/cifar10/test_metrics.py",),
    "cifar10/losses.py": ("tests/cifar10/test_losses.py",),
    "launch/supervisor.py": ("tests/launch/test_supervisor.py",),
    "launch/verdict.py": ("tests/launch/test_verdict.py",),
}
