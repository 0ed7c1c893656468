"""Computes fastnet's first layer, the principal components of the training images' patches.

As in airbench94 (Jordan 2024, arXiv:2404.00498, section 3.2), each component is divided by the
square root of its eigenvalue, so that all outputs have variance about 1. Each component is used
twice, once with either sign, since the following activation passes only one sign.
"""

from typing import Any

import numpy as np

from cifar10.schema import CHANNELS

PROJECTION = "model/whitening/projection"
SAMPLE = 5_000  # images: more do not change the components
_LEAST_EIGENVALUE = 5e-4  # added to each, which limits how much a component is amplified


def whitening_projection(images: Any, size: int) -> Any:
    """Computes the kernel whose outputs for the components are uncorrelated, of variance about 1.

    Args:
      images: standardised images, float32 [N, height, width, 3].
      size: the side of a patch, in pixels.

    Returns:
      float32 [size, size, 3, 2 * size * size * 3]: the components by decreasing eigenvalue, then
      their negatives.
    """
    height, width = (side - size + 1 for side in images.shape[1:3])
    shifted = [
        images[:, row : row + height, column : column + width]
        for row in range(size)
        for column in range(size)
    ]
    patches = np.concatenate(shifted, axis=-1).reshape(-1, size * size * CHANNELS)
    eigenvalues, components = np.linalg.eigh(patches.T @ patches / np.float32(len(patches)))
    scaled = (components / np.sqrt(eigenvalues + _LEAST_EIGENVALUE))[:, ::-1]
    kernel = np.concatenate([scaled, -scaled], axis=1).astype(np.float32)
    return kernel.reshape(size, size, CHANNELS, -1)
