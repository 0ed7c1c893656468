"""The kinds of input, one module each, and the finding out which one a path is."""
