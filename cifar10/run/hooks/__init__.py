"""Hooks for the work between steps: logging, progress, summaries, validation."""
