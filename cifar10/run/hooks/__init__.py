"""What happens between two steps of training: one hook, and what it calls."""
