"""The kinds of input, one module each, and the detection of the kind of a path."""
