"""Mutation testing: small faults are put into the code, and its tests have to notice each."""
