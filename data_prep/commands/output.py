"""What the commands print."""

from collections.abc import Mapping, Sequence

from cifar10 import schema
from cifar10_program.streams import one_line


def say(line: str) -> None:
    """Prints a line; names from files and folders in it cannot write on the terminal."""
    print(one_line(line), flush=True)


def print_counts(class_names: Sequence[str], counts: Mapping[str, Sequence[int]]) -> None:
    """Prints the number of images of each split, and of each class within it."""
    splits = [split for split in schema.SPLITS if split in counts]
    say("")
    say(f"{'':12}" + "".join(f"{split:>12}" for split in splits))
    for label, name in enumerate(class_names):
        say(f"{name:12}" + "".join(f"{counts[split][label]:12,}" for split in splits))
    say(f"{'all':12}" + "".join(f"{sum(counts[split]):12,}" for split in splits))
    say("")
