"""Run folders: training settings, records, predictions and comparisons."""
