"""The cluster: TF_CONFIG or flags → its tasks and addresses."""
