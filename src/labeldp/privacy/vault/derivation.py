"""What a release was derived from: the releases and models that its rows and arrays were computed from."""

from collections.abc import Sequence
from typing import Any, cast

from labeldp.accounting.costs import LabelUse
from labeldp.accounting.lineage import HasLineage
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee
from labeldp.privacy.vault.chain import Chain
from labeldp.releases.base import Release


def check_sources(derived_from: Any) -> list[HasLineage]:
    """Return the releases and models that something was derived from; a model that saw no label is none of them."""
    sources = derived_from if isinstance(derived_from, list | tuple) else [derived_from]
    if not all(hasattr(each, "lineage") and hasattr(each, "guarantee") for each in sources):
        raise InputError("derived_from takes the releases and models from which rows or arrays were computed.")
    return [each for each in sources if each.guarantee is not None]


def source_guarantee(source: HasLineage) -> Guarantee:
    """Return the guarantee of one of `named_sources`, which always has one."""
    return cast(Guarantee, source.guarantee)


def source_entries(chain: Chain, derived_from: Sequence[HasLineage]) -> Any:
    """Return the ledger entries that something was derived from, as an entry records it.

    Raises:
        InputError: One of them is not in this ledger, or was never drawn.
    """
    entry_ids = [entry_id for source in derived_from for entry_id in _entries_of(source)]
    if not all(chain.is_committed(entry_id) for entry_id in entry_ids):
        raise InputError("derived_from names a release that is not of this vault: derive from its releases only.")
    return entry_ids or "declared public"


def _entries_of(source: HasLineage) -> list[str]:
    """Return the ledger entries of a release, or of all uses of labels behind a model."""
    if isinstance(source, Release):
        return (source.entry or "unknown").split(",")
    return [use.entry for use in source.lineage] or ["unknown"]


def combine_lineage(sources: Sequence[HasLineage], *own: LabelUse) -> tuple[LabelUse, ...]:
    """Return all uses of labels behind some sources, each once, and then one's own."""
    return tuple(dict.fromkeys([*(use for source in sources for use in source.lineage), *own]))
