"""The private side: labels, what was spent on them, and the one way out."""

from labeldp.vault.identity import Identity, identify
from labeldp.vault.ledger import Entry, Ledger
from labeldp.vault.vault import Plan, Vault

__all__ = ["Entry", "Identity", "Ledger", "Plan", "Vault", "identify"]
