"""The modes other than training: evaluation, prediction and export."""
