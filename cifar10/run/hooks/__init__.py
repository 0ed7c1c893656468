"""What happens between steps: logging, progress, summaries, validation."""
