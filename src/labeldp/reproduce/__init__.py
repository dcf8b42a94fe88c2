"""Tables of papers: the printed results, and the recipe and training of each cell."""
