"""What people read: ledgers, cards, plots and tables."""
