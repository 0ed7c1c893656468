"""The folder of records: its manifest, and how a complete one takes its place."""
