"""Which tasks there are, who they are, whether they answer, and how they end together."""
