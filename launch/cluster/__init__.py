"""Reads the description of a cluster, and works out its tasks and their ports."""
