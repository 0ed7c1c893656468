"""The cluster: its tasks and addresses, their liveness, their servers and their shutdown."""
