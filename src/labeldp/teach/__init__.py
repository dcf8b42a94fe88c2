"""Teachers that vote on what they learned from secret labels, and what their answers cost."""
