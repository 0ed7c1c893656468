"""What TensorFlow and Estimator do not promise: private API, patches, the words of messages.

Each module says what it touches and why public API does not do. All were checked with 2.15.1; of
each, a test in tests/cifar10/tf_internals fails where another version differs.
"""
