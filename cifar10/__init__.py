"""Training CIFAR-10 with tf.estimator; `cifar10.main.main` is the entry point."""

import os
import platform

# TensorFlow 2.15 reads this when it loads. By itself it uses oneDNN only on CPUs with AVX512_VNNI,
# AVX512_BF16, AVX_VNNI or AMX; on others it is slower without, and has no NCHW convolutions.
if platform.machine() == "x86_64":
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
