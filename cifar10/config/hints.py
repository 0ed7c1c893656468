"""What people of other programs call our settings, for messages about an unknown name."""

from collections.abc import Collection
from typing import Callable

from cifar10.settings import nearest

# Their flags -> ours, or what to do instead. What is missing here, the nearest flag answers.
_MEANT = {
    "b batch batch-size": "train-batch-size",
    "iterations max-steps num-batches num-steps steps": "train-steps",
    "base-lr init-lr lr": "learning-rate",
    "wd": "weight-decay",
    "data-path dataset": "data-dir",
    "checkpoint-dir model-dir save-dir train-dir": "output-dir",
    "display-every log-interval print-freq": "log-steps",
    "arch": "model",
    "depth": "num-layers",
    "amp bf16 mixed-precision": "precision bf16",
    "fp16 use-fp16": "precision fp16",
    "augment distortions": "use-distortion-for-training",
    "eval evaluate test": "mode evaluate",
    "pretrained": "init-checkpoint",
    "cpu no-cuda": "num-gpus 0",
    "variable-update": "replication",
    "local-parameter-device": "variable-strategy",
    "load restore resume": "the same command continues from the last checkpoint",
    "j workers": "reading needs no workers; TF_CONFIG or --worker-hosts list the tasks that train",
    "chief-hosts master-hosts": "the chief is the first of --worker-hosts",
    "device gpu": "CUDA_VISIBLE_DEVICES chooses GPUs, and --num-gpus says how many",
    "download use-synthetic-data": "`python -m data_prep` makes the records",
}


def hint(word: str, known: Collection[str], spell: Callable[[str], str]) -> str:
    """Returns the end of the message about a name that no setting has; "" if nothing is similar.

    Args:
      word: the name, with dashes between its words and none in front.
      known: the names of all settings, spelt in the same way.
      spell: function that spells such a name as the user does.
    """
    for words, meant in _MEANT.items():
        if word in words.split():
            is_flag = meant.split()[0] in known
            return f"; did you mean {spell(meant)}?" if is_flag else f"; {meant}"
    return nearest(word, known, spell)
