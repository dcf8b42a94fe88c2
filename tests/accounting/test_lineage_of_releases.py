from types import SimpleNamespace

import pytest
from bound_vault import LABELS, RR, SPACE

import labeldp as ldp
from labeldp.accounting.lineage import check_sources, combine_lineage, source_guarantee
from labeldp.privacy.vault.account import source_entries

PUBLIC = SimpleNamespace(lineage=(), guarantee=None)


@pytest.fixture
def vault():
    return ldp.Vault(LABELS, SPACE, ldp.Budget(9.0))


def test_one_source_is_a_list_of_one_and_what_saw_no_label_is_none(vault):
    release = vault.release(RR(0.5))
    assert check_sources(release) == [release]
    assert check_sources(()) == []
    for given in ([release, PUBLIC], (PUBLIC, release)):
        assert check_sources(given) == [release]
    assert source_guarantee(release) is release.guarantee


@pytest.mark.parametrize("other", ["words", SimpleNamespace(lineage=()), SimpleNamespace(guarantee=None)])
def test_what_has_no_lineage_or_no_guarantee_is_no_source(vault, other):
    with pytest.raises(ldp.InputError, match="derived_from takes the releases and models"):
        check_sources([vault.release(RR(0.5)), other])


def test_the_origin_names_every_entry_behind_a_source(vault):
    first, second = vault.release(RR(0.5)), vault.release(RR(0.25), row_selection=[1, 2])
    chain = vault.ledger.snapshot()
    both = first.concat(first, second)
    model = SimpleNamespace(lineage=(*first.lineage, *second.lineage), guarantee=first.guarantee)
    assert source_entries(chain, []) == "declared public"
    assert source_entries(chain, [second]) == [second.entry]
    assert source_entries(chain, [both]) == [first.entry, second.entry]
    assert source_entries(chain, [model]) == [first.entry, second.entry]
    assert combine_lineage([first, both], *second.lineage) == (*first.lineage, *second.lineage)


def test_what_is_not_in_the_ledger_is_no_origin(vault):
    chain, release = vault.ledger.snapshot(), vault.release(RR(0.5))
    stranger = ldp.Vault(LABELS, SPACE, ldp.Budget(9.0)).release(RR(0.5))
    unnamed = SimpleNamespace(lineage=(), guarantee=release.guarantee)
    for source in (stranger, unnamed):
        with pytest.raises(ldp.InputError, match="not of this vault"):
            source_entries(chain, [release, source])
