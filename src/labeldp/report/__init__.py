"""Reports for readers: ledgers, privacy cards, plots and tables."""
