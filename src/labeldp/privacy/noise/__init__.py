"""Random bits from the operating system, and exact samplers on them."""
