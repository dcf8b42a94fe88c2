import numpy as np
import pytest
from bound_vault import LABELS, RR, SPACE, identity, open_vault

import labeldp as ldp


def test_a_later_run_finds_what_an_earlier_one_spent(path):
    first = open_vault(path).release(RR(0.6))
    later = open_vault(path)
    assert later.guarantee().epsilon == 0.6
    assert (later.release(RR(0.6)).labels() == first.labels()).all()
    with pytest.raises(ldp.BudgetExceeded):
        later.release(RR(0.5))


def test_a_changed_label_opens_the_same_ledger(path):
    open_vault(path).release(RR(0.6))
    changed = open_vault(path, labels=[1, *LABELS[1:]])
    assert changed.guarantee().epsilon == 0.6


@pytest.mark.parametrize("change", [{"rows": 999}, {"digest": "abd"}])
def test_another_data_set_is_refused(path, change):
    open_vault(path).release(RR(0.5))
    rows = change.get("rows", len(LABELS))
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        open_vault(path, labels=LABELS[:rows], identity=identity(**change))


def test_a_renamed_data_set_with_the_same_features_is_the_same(path):
    open_vault(path).release(RR(0.5))
    assert open_vault(path, identity=identity(name="renamed")).guarantee().epsilon == 0.5


def test_without_a_digest_the_name_decides(path):
    open_vault(path, identity=identity(digest=None)).release(RR(0.5))
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        open_vault(path, identity=identity(digest=None, name="others"))


def test_unit_and_composition_cannot_change(path):
    open_vault(path).release(RR(0.5))
    with pytest.raises(ldp.LedgerError, match="protects each label"):
        open_vault(path, users=np.arange(1000) // 2)
    with pytest.raises(ldp.LedgerError, match='adds up by "sum"'):
        ldp.Vault(LABELS, SPACE, ldp.Budget(1.0, 1e-5, "rdp"), ledger=path, identity=identity())


def test_a_ledger_without_an_entry_remembers_nothing(path):
    """As a command leaves it that was refused: whoever follows the advice must not be refused again."""
    open_vault(path, 0.1)
    open_vault(path, users=np.arange(1000) // 2)
    ldp.Vault(LABELS, SPACE, ldp.Budget(1.0, 1e-5, "rdp"), ledger=path, identity=identity())
    again = open_vault(path, 2.0, labels=LABELS[:10], identity=identity(rows=10))
    again.release(RR(2.0))
    assert [entry.kind for entry in again.ledger.entries()] == ["release"]
    assert ldp.Ledger(path).facts()["identity"]["rows"] == 10
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        open_vault(path)


def test_a_vault_whose_ledger_went_to_other_data_cannot_spend(path):
    mine = open_vault(path)
    same = open_vault(path)
    theirs = open_vault(path, users=np.arange(1000) // 2)
    theirs.release(RR(0.1))
    theirs.plan(RR(0.1))
    for stale in (mine, same):
        for ask in (lambda v: v.release(RR(0.1)), lambda v: v.plan(RR(0.1)), lambda v: v.release(RR(0.2))):
            with pytest.raises(ldp.LedgerError, match="open the vault again"):
                ask(stale)
    assert [entry.kind for entry in theirs.ledger.entries()] == ["release", "plan"]


def test_a_plan_that_was_made_before_is_not_drawn_from_other_data(path):
    """Of a ledger that is copied into the place of another one, say: with an entry, none is bound anew."""
    mine = open_vault(path)
    plan = mine.plan(RR(0.1))
    other = path.with_name("other")
    open_vault(other).plan(RR(0.1))
    path.write_bytes(other.read_bytes())
    with pytest.raises(ldp.LedgerError, match="damaged"):
        plan.release(RR(0.1))
    mine._account.mark = "of other data"
    path.unlink()
    with pytest.raises(ldp.LedgerError, match="no ledger"):
        plan.release(RR(0.1))


def test_costs_at_another_renyi_order_are_not_charged(path):
    """The order is that of the first budget; what was priced at it while another one came must be priced again."""

    class Slow(RR):
        def prepare(self, codes, space, memory):
            renyi(1.0, 1e-6)
            return self

    def renyi(epsilon, delta):
        return ldp.Vault(LABELS, SPACE, ldp.Budget(epsilon, delta, "rdp"), ledger=path, identity=identity())

    mine = renyi(100.0, 1e-6)
    with pytest.raises(ldp.LedgerError, match="open the vault again"):
        mine.release(Slow(0.5))
    assert not mine.ledger.entries()


def test_a_total_that_nobody_gave_leaves_that_of_a_ledger_alone(path):
    seen = []

    def chosen(known):
        seen.append(known)
        return known or ldp.Budget(8.0)

    open_vault(path, 1.0).release(RR(1.0))
    again = ldp.Vault(LABELS, SPACE, chosen, ledger=path, identity=identity())
    assert again.budget == ldp.Budget(1.0)
    assert seen[-1] == ldp.Budget(1.0)
    assert [entry.kind for entry in again.ledger.entries()] == ["release"]


def test_vaults_of_the_same_data_share_a_ledger_from_the_start(path):
    first, second = open_vault(path), open_vault(path)
    first.release(RR(0.5))
    assert second.release(RR(0.5)).entry == first.ledger.entries()[0].id


def test_a_new_budget_is_written_down(path):
    open_vault(path, 1.0).release(RR(1.0))
    raised = open_vault(path, 2.0)
    raised.release(RR(0.9))
    kinds = [(e.kind, e.details["mechanism"]) for e in raised.ledger.entries()]
    assert kinds == [("release", "RandomizedResponse"), ("budget", "new budget"), ("release", "RandomizedResponse")]
    assert ldp.Ledger(path).facts()["budget"]["epsilon"] == 2.0


def test_a_budget_below_what_is_spent_is_refused_and_not_kept(path):
    open_vault(path, 1.0).release(RR(0.6))
    with pytest.raises(ldp.InputError, match=r"Epsilon 0\.6 and delta 0 are spent already"):
        open_vault(path, 0.5)
    assert ldp.Ledger(path).facts()["budget"]["epsilon"] == 1.0
    assert open_vault(path, 0.6).remaining() == (0.0, 0.0)


def test_a_file_needs_an_identity(path):
    with pytest.raises(ldp.InputError, match="say which by identity"):
        ldp.Vault(LABELS, SPACE, ldp.Budget(1.0), ledger=path)
    with pytest.raises(ldp.InputError, match="names 3 rows"):
        open_vault(path, identity=identity(rows=3))
    assert not path.exists()


@pytest.mark.parametrize("problem", [KeyboardInterrupt, KeyError])
def test_an_interrupted_sum_forgets_no_charge(path, monkeypatch, problem):
    """The same vault goes on after an interruption, as it does in a notebook."""
    vault = open_vault(path, 1.0)
    open_vault(path, 1.0).release(RR(0.6), rows=range(10))
    with monkeypatch.context() as patch:
        patch.setattr(vault.ledger, "rows", lambda row_set: (_ for _ in ()).throw(problem))
        with pytest.raises(problem):
            vault.remaining()
    assert vault.guarantee().epsilon == 0.6
    with pytest.raises(ldp.BudgetExceeded):
        vault.release(RR(0.5), rows=range(10))
