"""Types and helpers that every other package uses: errors, guarantees, label spaces, atomic files."""
