"""Sees the tasks under agents through to their end."""
