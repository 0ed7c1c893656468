"""Training CIFAR-10 with tf.estimator; `cifar10.main.main` is the entry point."""
