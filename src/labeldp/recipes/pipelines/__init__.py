"""The pipelines of the papers and our own, one file for each family."""
