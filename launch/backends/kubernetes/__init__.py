"""Runs tasks as a Kubeflow TFJob, which kubectl creates and follows."""
