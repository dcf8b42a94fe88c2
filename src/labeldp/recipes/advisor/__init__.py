"""What a budget can achieve, by arithmetic on public facts: forecasts and the choice of a recipe."""
