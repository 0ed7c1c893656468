"""A small network whose steps take milliseconds, for tests of clusters."""

SETTINGS = (
    "--model=mlp",
    "--optimizer=adam",
    "--learning-rate=0.001",
    "--schedule=constant",
    "--use-distortion-for-training=false",
    "--train-batch-size=50",
)
