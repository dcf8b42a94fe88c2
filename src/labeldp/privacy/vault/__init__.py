"""The private side: labels, what was spent on them, and the one way out."""

from labeldp.privacy.vault.entries import Entry
from labeldp.privacy.vault.identity import Identity, identify
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.release_plan import ReleasePlan
from labeldp.privacy.vault.vault import Vault

__all__ = ["Entry", "Identity", "Ledger", "ReleasePlan", "Vault", "identify"]
