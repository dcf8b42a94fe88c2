"""The vault: secret labels, the ledger of their privacy costs, and the releases."""

from labeldp.privacy.vault.entries import Entry
from labeldp.privacy.vault.identity import Identity, identify
from labeldp.privacy.vault.ledger import Ledger
from labeldp.privacy.vault.release_plan import ReleasePlan
from labeldp.privacy.vault.vault import Vault

__all__ = ["Entry", "Identity", "Ledger", "ReleasePlan", "Vault", "identify"]
