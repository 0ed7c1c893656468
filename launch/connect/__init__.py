"""A connection to each host's agent, and the conversation over it."""
