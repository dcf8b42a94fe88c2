"""Forecasts of recipes and the choice among them, computed from public facts alone."""
