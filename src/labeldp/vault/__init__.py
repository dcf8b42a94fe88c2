"""The private side: labels, what was spent on them, and the one way out."""

from labeldp.vault.entries import Entry
from labeldp.vault.identity import Identity, identify
from labeldp.vault.ledger import Ledger
from labeldp.vault.plan import Plan
from labeldp.vault.vault import Vault

__all__ = ["Entry", "Identity", "Ledger", "Plan", "Vault", "identify"]
