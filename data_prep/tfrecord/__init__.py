"""Writes and reads TFRecord files of CIFAR-10 images."""
