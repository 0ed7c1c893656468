"""Runs a training job on a cluster that a list of hosts describes, without TensorFlow.

The launcher communicates with the training program only through its command line, its environment
(TF_CONFIG), signals, its output and its exit code. `python -m launch --help` lists the commands.
"""
