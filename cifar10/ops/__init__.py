"""Operations of our own in TensorFlow's place: convolutions and activations."""
