"""The program of each kind of task, from its start to its end."""
