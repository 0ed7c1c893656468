"""Connects the launcher to an agent on each host, and exchanges messages with the agents."""
