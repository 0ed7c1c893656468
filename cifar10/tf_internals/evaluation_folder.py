"""The folder for the events of an Estimator's evaluations.

Touches: `eval_dir` of a tf.estimator.Estimator, which is replaced on the object.

Why: Estimator writes the events of `evaluate(name="validation")` to `eval_validation` in the folder
of the checkpoints. TensorBoard shows a folder's name as the name of the run, and --log-dir may be
another folder. Estimator has no argument for it, and refuses subclasses that override a method.
"""

from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf


def log_evaluations(
    estimator: tf.estimator.Estimator, folder_of: Callable[[Optional[str]], str]
) -> Any:
    """Makes an Estimator write the events of its evaluations to folders of the caller's choice.

    Args:
      estimator: the Estimator, which is changed.
      folder_of: function from the name of an evaluation to the folder for its events.

    Returns:
      The Estimator.
    """
    estimator.eval_dir = folder_of
    return estimator
