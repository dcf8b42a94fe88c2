"""Run folders: how to train, what a run records, predictions and comparisons."""
