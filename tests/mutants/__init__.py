"""Mutation testing: puts small faults into the code, and checks that its tests notice each."""
