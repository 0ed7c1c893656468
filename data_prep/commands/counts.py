"""A table of the number of images per split and class."""

from collections.abc import Mapping, Sequence

from cifar10 import schema


def print_counts(class_names: Sequence[str], counts: Mapping[str, Sequence[int]]) -> None:
    """Prints the number of images of each split, and of each class within it."""
    splits = [split for split in schema.SPLITS if split in counts]
    print(f"\n{'':12}" + "".join(f"{split:>12}" for split in splits))
    for label, name in enumerate(class_names):
        print(f"{name:12}" + "".join(f"{counts[split][label]:12,}" for split in splits))
    print(f"{'all':12}" + "".join(f"{sum(counts[split]):12,}" for split in splits))
