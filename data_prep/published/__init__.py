"""The published archives: where they are, their checksums, fetching them."""
