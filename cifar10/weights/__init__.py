"""A model's weights: the variables that layers request, and how they are stored."""
