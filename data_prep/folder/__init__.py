"""The folder of records: its manifest, its checks, and the replacement of its content."""
