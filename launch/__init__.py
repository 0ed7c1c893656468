"""From a list of hosts to a finished cluster job, without TensorFlow.

It meets training only by argv, environment (TF_CONFIG) and exit codes: `python -m launch --help`.
"""
