"""All parsers, one row each."""

from tests.fuzz import (
    data_parsers,
    kubernetes_parsers,
    launch_parsers,
    output_parsers,
    training_parsers,
)

PARSERS = [
    *data_parsers.PARSERS,
    *training_parsers.PARSERS,
    *launch_parsers.PARSERS,
    *kubernetes_parsers.PARSERS,
    *output_parsers.PARSERS,
]
