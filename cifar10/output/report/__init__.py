"""Renders `report.html`: a self-contained page that shows how training went.

The page contains its style, curves and pictures, and makes no requests.
"""

from cifar10.output.report.confusion import confusion_matrix_png
from cifar10.output.report.mistakes import Mistake, png_of
from cifar10.output.report.page import render_report

__all__ = ["Mistake", "confusion_matrix_png", "png_of", "render_report"]
