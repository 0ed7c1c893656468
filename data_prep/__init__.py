"""Turns CIFAR-10 archives into checked TFRecords, without importing TensorFlow.

`python -m data_prep --source PATH --out DIR`; `python -m data_prep --help` explains the commands.
"""
