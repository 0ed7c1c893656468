"""A model's weights: what layers ask for, and how it is stored."""
