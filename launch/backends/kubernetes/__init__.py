"""Runs tasks as a Kubeflow TFJob, or as a Job each, which kubectl creates and follows."""
