"""Layers, and the custom ops and activations in place of TensorFlow's."""
