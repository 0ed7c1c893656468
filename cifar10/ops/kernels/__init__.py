"""Convolutions for CPUs in C++, compiled on the machine that trains: `docs/kernels.md`.

`winograd.cc` computes, `ops.cc` makes TensorFlow's ops of it, `build` compiles, `library` loads.
"""
