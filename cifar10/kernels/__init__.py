"""Convolutions, activations and normalisation for CPUs in C++: docs/kernels.md.

They are compiled on the training machine: `build` compiles them, and `library` loads them.
"""
