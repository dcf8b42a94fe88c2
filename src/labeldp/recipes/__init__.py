"""The papers' pipelines as short compositions of mechanisms and learners, by name."""
