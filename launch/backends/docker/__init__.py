"""Tasks in containers, by agents that run `docker`."""
