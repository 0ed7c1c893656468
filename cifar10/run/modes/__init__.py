"""The modes beside training: evaluation, prediction and export."""
