"""Label-free learning: encoders and clusters. Features are public, so all of this is free of charge."""
