"""The kinds of input, one module each, and the detection of a path's kind."""
