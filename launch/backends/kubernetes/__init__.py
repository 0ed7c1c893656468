"""A Kubeflow TFJob, followed with kubectl."""
