"""Renders `report.html`: one self-contained page that shows how a training went.

The page makes no request of any kind: style, curves and pictures are in it.
"""

from cifar10.output.report.confusion import confusion_matrix_png
from cifar10.output.report.mistakes import Mistake
from cifar10.output.report.page import render_report

__all__ = ["Mistake", "confusion_matrix_png", "render_report"]
