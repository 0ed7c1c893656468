"""This machine: its processor, terminal, files and signals."""
