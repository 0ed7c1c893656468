"""What the trainers of a job must agree on; tasks compare it when they meet."""

import dataclasses
import hashlib
from pathlib import Path

from cifar10.config.train_config import TrainConfig
from cifar10.input.records import RecordSet
from cifar10.schema import TRAIN
from cifar10.settings import flag_name, flag_of
from cifar10_program import VERSION

_OF_TRAINERS = ("sync", "replicas_to_aggregate", "replication", "ps_transfer")
_NOT_TRAINED_BY = ("seeds", "test_time_augmentation")
_CHARS = 8  # of a digest


def terms(config: TrainConfig, records: RecordSet) -> dict[str, str]:
    """Returns what decides the steps of all trainers: settings by flag, the code, the records."""
    settings = {
        flag_name(field.name): str(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if flag_of(field).group in ("model", "training") or field.name in _OF_TRAINERS
        if field.name not in _NOT_TRAINED_BY
    }
    parts = records.fingerprints().get(TRAIN, [])
    return {
        "the program": f"version {VERSION}, {_code()}",
        **settings,
        "the training records": _digest("\n".join(parts).encode()),
    }


def _code() -> str:
    """Returns a digest of the modules that train."""
    root = Path(__file__).parents[1]
    paths = sorted(root.rglob("*.py"))
    return _digest(
        b"".join(str(one.relative_to(root)).encode() + one.read_bytes() for one in paths)
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_CHARS]
