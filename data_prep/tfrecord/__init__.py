"""TFRecords of CIFAR-10: examples, files, and reading them back."""
