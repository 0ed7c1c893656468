"""Layers, and our own convolutions and activations in place of TensorFlow's."""
