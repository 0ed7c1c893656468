"""This machine: its CPU, this process, files and locks."""
