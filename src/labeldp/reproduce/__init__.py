"""The papers' tables, made again: what they printed, and the recipe that answers each cell."""
