"""This machine: its CPU, standard output, files and signals."""
