"""What watches a run: other tasks, locks of folders, stalls, signals. Begin with `of`."""

from cifar10.guard.guard import Guard as Guard
from cifar10.guard.guard import of as of
