"""Random bits from the operating system, and exact samplers of noise that read them."""
