"""Runs a training job on a cluster of hosts; does not load TensorFlow.

The launcher communicates with the training program only through its command line, its environment
(TF_CONFIG), signals, its output and its exit code. `python -m launch --help` lists the commands.
"""
