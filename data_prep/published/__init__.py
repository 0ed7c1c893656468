"""The published archives: their addresses and checksums, and their download."""
