"""Uses of TensorFlow and Estimator beyond their public API: private names, patches, messages.

Each module states what it touches and why the public API is not enough. All were checked with
TensorFlow 2.15.1; a test in tests/cifar10/tf_internals for each fails if another version differs.
"""
