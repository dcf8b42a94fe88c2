import numpy as np
import pytest
from bound_vault import LABELS, RR, SPACE, identity, open_vault

import labeldp as ldp
from labeldp.mechanisms import GroupHistogram, OneHotGaussian
from labeldp.privacy.vault import Ledger, account


def renyi(path, epsilon, delta):
    return ldp.Vault(LABELS, SPACE, ldp.Budget(epsilon, delta, "rdp"), ledger=path, identity=identity())


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


@pytest.mark.parametrize("change", [{"n_rows": 999}, {"digest": "abd"}])
def test_another_data_set_is_refused(path, change):
    open_vault(path).release(RR(0.5))
    rows = change.get("n_rows", len(LABELS))
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
    again = open_vault(path, 2.0, labels=LABELS[:10], identity=identity(n_rows=10))
    again.release(RR(2.0))
    assert [entry.kind for entry in again.ledger.entries()] == ["release"]
    assert Ledger(path).facts()["identity"]["n_rows"] == 10
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
            renyi(path, 1.0, 1e-6)
            return self

    mine = renyi(path, 100.0, 1e-6)
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
    entries = [(e.kind, e.details["mechanism"]) for e in raised.ledger.entries()]
    assert entries == [("release", "RandomizedResponse"), ("budget", "new budget"), ("release", "RandomizedResponse")]
    assert Ledger(path).facts()["budget"]["epsilon"] == 2.0


def test_a_budget_below_the_spent_cost_is_refused_and_not_stored(path):
    open_vault(path, 1.0).release(RR(0.6))
    with pytest.raises(ldp.InputError, match=r"Epsilon 0\.6 and delta 0 are spent already"):
        open_vault(path, 0.5)
    assert Ledger(path).facts()["budget"]["epsilon"] == 1.0
    assert open_vault(path, 0.6).remaining() == (0.0, 0.0)


def test_a_file_needs_an_identity(path):
    with pytest.raises(ldp.InputError, match="say which by identity"):
        ldp.Vault(LABELS, SPACE, ldp.Budget(1.0), ledger=path)
    with pytest.raises(ldp.InputError, match="names 3 rows"):
        open_vault(path, identity=identity(n_rows=3))
    assert not path.exists()


@pytest.mark.parametrize("problem", [KeyboardInterrupt, KeyError])
def test_an_interrupted_sum_forgets_no_charge(path, monkeypatch, problem):
    """The same vault goes on after an interruption, as it does in a notebook."""
    vault = open_vault(path, 1.0)
    open_vault(path, 1.0).release(RR(0.6), row_selection=range(10))
    with monkeypatch.context() as patch:
        patch.setattr(vault.ledger, "packed_rows", lambda row_set: (_ for _ in ()).throw(problem))
        with pytest.raises(problem):
            vault.remaining()
    assert vault.guarantee().epsilon == 0.6
    with pytest.raises(ldp.BudgetExceeded):
        vault.release(RR(0.5), row_selection=range(10))


def test_another_budget_keeps_the_renyi_order(path):
    """Costs were added up at the order of the first budget, and mean nothing at another one."""
    first = renyi(path, 1.0, 1e-6)
    first.release(RR(0.1))
    spent = first.guarantee()
    raised = renyi(path, 100.0, 1e-6)
    assert raised.guarantee() == spent
    raised.release(RR(0.2))
    alone = renyi(path.with_name("alone.ledger"), 1.0, 1e-6)
    alone.release(RR(0.1))
    alone.release(RR(0.2))
    assert raised.guarantee().epsilon == alone.guarantee().epsilon


def test_the_delta_of_a_renyi_ledger_cannot_be_changed(path):
    renyi(path, 1.0, 1e-6).release(RR(0.25))
    for delta in (1e-5, 1e-7):
        with pytest.raises(ldp.LedgerError, match=r"bound to delta 1e-06, which cannot be changed"):
            renyi(path, 1.0, delta)
    assert renyi(path, 1.0, 1e-6).guarantee().delta == 1e-6


def test_the_delta_of_a_budget_cannot_be_less_than_what_is_spent(path):
    def opened(delta):
        return ldp.Vault(LABELS, SPACE, ldp.Budget(1.0, delta), ledger=path, identity=identity())

    opened(1e-5).release(OneHotGaussian(0.5, 1e-6))
    with pytest.raises(ldp.InputError, match=r"Epsilon 0\.5 and delta 1e-06 are spent already"):
        opened(9e-7)
    assert opened(1e-6).remaining() == (0.5, 0.0)


def test_a_label_whose_own_cost_is_not_known_is_charged_that_of_the_largest_count():
    """Plans of users who all own several rows state no cost of one label; no label loses more than its owner."""
    users = [0, 0, 1, 1, 1]
    vault = ldp.Vault([0, 1, 0, 1, 0], SPACE, ldp.Budget(9.0), users=users)
    vault.plan(RR(0.5))
    account, entries = vault._account, vault.ledger.entries()
    assert account.sum_entries(entries).max_cost().epsilon == 1.5
    assert account.sum_entries(entries, "label").max_cost().epsilon == 1.5


def test_a_ledger_whose_only_entry_is_reserved_is_not_bound_anew(path, monkeypatch):
    """Noise may have been drawn before the process died: what is reserved is spent."""

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RR, "draw", dies)
        with pytest.raises(KeyboardInterrupt):
            open_vault(path).release(RR(0.6))
    assert open_vault(path).guarantee().epsilon == 0.6
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        open_vault(path, labels=LABELS[:10], identity=identity(n_rows=10))
    with pytest.raises(ldp.InputError, match="spent already"):
        open_vault(path, 0.5)


def test_a_total_that_nobody_gave_takes_over_how_a_ledger_adds_up(path):
    renyi(path, 1.0, 1e-6).release(RR(0.1))
    again = ldp.Vault(LABELS, SPACE, lambda known: known or ldp.Budget(8.0), ledger=path, identity=identity())
    assert again.budget == ldp.Budget(1.0, 1e-6, "rdp")


@pytest.mark.parametrize("composition", ["sum", "rdp"])
def test_equal_charges_that_are_read_together_add_up(path, composition):
    def opened():
        return ldp.Vault(LABELS, SPACE, ldp.Budget(9.0, 1e-5, composition), ledger=path, identity=identity())

    first = opened()
    groups = [np.arange(len(LABELS)) % count for count in (1, 2, 3)]
    for each in groups:  # three requests of one cost
        first.release(GroupHistogram(each, 0.25, 1e-6))
    assert len({entry.row_set for entry in first.ledger.entries()}) == 1
    again = opened()
    assert again.guarantee() == first.guarantee()
    if composition == "sum":
        assert (again.guarantee().epsilon, again.guarantee().delta) == (0.75, 3e-6)


def test_different_charges_of_the_same_rows_that_are_read_together_add_up(path):
    first = open_vault(path, 9.0)
    for epsilon in (0.5, 0.25, 1.0):
        first.release(RR(epsilon), row_selection=[0, 1])
        first.release(RR(epsilon), row_selection=[1, 2])
    assert open_vault(path, 9.0).remaining([0]) == (9.0 - 1.75, 0.0)
    assert open_vault(path, 9.0).guarantee().epsilon == first.guarantee().epsilon == 3.5


def test_a_refusal_names_what_is_left_for_these_rows_and_every_label_that_is_counted(path):
    vault = open_vault(path)
    vault.release(RR(0.75), row_selection=[0])
    with pytest.raises(ldp.BudgetExceeded, match=r"has epsilon 0\.25 and delta 0 left for these rows.*budget\.$"):
        vault.release(RR(0.5), row_selection=[0, 1])
    with pytest.raises(ldp.BudgetExceeded, match="has epsilon 1 and delta 0 left for these rows"):
        vault.release(RR(1.5), row_selection=[1])
    other = open_vault(path, identity=identity(label="illness"))
    other.release(RR(0.25), row_selection=[1])
    with pytest.raises(ldp.BudgetExceeded, match=r"adds up all labels of these rows \(income, illness\)"):
        other.release(RR(0.5), row_selection=[0])


def test_a_ledger_of_users_is_for_these_users(path):
    users = np.arange(1000) // 2
    open_vault(path, users=users).release(RR(0.25))
    assert open_vault(path, users=users).guarantee().epsilon == 0.5
    assert open_vault(path, users=[f"user {who}" for who in users]).guarantee().epsilon == 0.5
    with pytest.raises(ldp.LedgerError, match="name the same users as before"):
        open_vault(path, users=np.arange(1000) // 4)


@pytest.mark.parametrize("users", [None, np.arange(10) // 4])
def test_totals_that_were_interrupted_start_again_for_the_same_units(users, monkeypatch):
    """Ten rows, so that no row set fills whole bytes, and users of four rows, who lose more than a row does."""
    vault = ldp.Vault([0, 1] * 5, SPACE, ldp.Budget(99.0), users=users)
    vault.release(RR(0.5), row_selection=[0, 1, 9])
    vault.release(RR(0.25), row_selection=[1, 2, 3, 8])
    before = [vault.remaining([row]) for row in range(10)]
    vault.release(RR(0.125), row_selection=[0])

    def interrupt(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(account.Spending, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            vault.guarantee()
    after = [vault.remaining([row]) for row in range(10)]
    touched = {row for row in range(10) if row == 0 or (users is not None and users[row] == users[0])}
    for row in range(10):
        assert before[row][0] - after[row][0] == (0.125 if row in touched else 0.0)
    assert before[1][0] == 99.0 - (0.75 if users is None else 1.75)
