import copy
import pickle
import threading
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from bound_vault import identity, open_vault

import labeldp as ldp
from labeldp.accounting import ApproximateLoss, GaussianLoss, PureLoss
from labeldp.accounting.costs import cap_labels_per_user, unpack_rows
from labeldp.mechanisms import GroupHistogram, LinearQuery, LossSum, OneHotGaussian, OneHotLaplace, RRTopK, RRWithPrior
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.entries import hash_request

SPACE = ldp.LabelSpace(["no", "yes"])
LABELS = ["no", "yes", "yes", "no", "yes", "no"]
RR = ldp.RandomizedResponse


def vault(epsilon=1.0, delta=0.0, labels=LABELS, **options):
    composition = options.pop("composition", "sum")
    return ldp.Vault(labels, SPACE, ldp.Budget(epsilon, delta, composition), **options)


def test_the_same_request_returns_the_same_noise_and_is_charged_once():
    v = vault(labels=LABELS * 50)
    first = v.release(RR(1.0))
    for again in (v.release(RR(1.0)), v.release(RR(1)), v.release(RR(1.0), row_selection=np.arange(300))):
        assert (again.labels() == first.labels()).all()
        assert again.entry == first.entry
    assert v.guarantee() == ldp.Guarantee(1.0, 0.0, "label", "local", v.guarantee().derivation)


def test_what_was_released_is_known_by_mechanism_and_rows():
    vault = ldp.Vault([0, 1, 1, 0], ldp.LabelSpace([0, 1]), ldp.Budget(2.0))
    vault.release(ldp.RandomizedResponse(1.0), row_selection=[0, 1])
    assert vault.was_released(ldp.RandomizedResponse(1.0), [0, 1])
    assert not vault.was_released(ldp.RandomizedResponse(1.0))
    assert not vault.was_released(ldp.RandomizedResponse(0.5), [0, 1])


def test_releases_of_the_same_rows_add():
    v = vault(1.0)
    v.release(RR(0.3))
    v.release(RR(0.5))
    assert v.guarantee().epsilon == 0.8
    assert v.remaining() == (0.2, 0.0)
    with pytest.raises(ldp.BudgetExceeded, match=r"costs epsilon 0.3 .* has epsilon 0.2"):
        v.release(OneHotLaplace(0.3))
    assert v.guarantee().epsilon == 0.8


def test_ten_tenths_are_one():
    v = vault(1.0)
    for height in range(1, 11):
        v.release(OneHotLaplace(0.1, height=height))
    assert v.guarantee().epsilon == 1.0
    with pytest.raises(ldp.BudgetExceeded):
        v.release(RR(1e-9))


def test_releases_of_other_rows_do_not_add():
    v = vault(1.0)
    v.release(RR(1.0), row_selection=[0, 1, 2])
    v.release(RR(0.6), row_selection=[3, 4, 5])
    assert v.guarantee().epsilon == 1.0
    assert v.remaining(row_selection=[3]) == (0.4, 0.0)
    assert v.remaining() == (0.0, 0.0)
    with pytest.raises(ldp.BudgetExceeded):
        v.release(RR(0.5), row_selection=[2, 3])
    v.release(RR(0.4), row_selection=[4])


def test_a_row_in_two_stages_is_refused():
    v = vault(1.0)
    v.release(RR(1.0), row_selection=[0, 1, 2])
    with pytest.raises(ldp.BudgetExceeded):
        v.release(RR(1.0), row_selection=[2, 3, 4])


def test_deltas_add_too():
    v = vault(9.0, 1e-6)
    v.release(OneHotGaussian(1.0, 6e-7))
    assert v.guarantee().delta == 6e-7
    with pytest.raises(ldp.BudgetExceeded, match="delta 4e-07 left"):
        v.release(GroupHistogram(np.zeros(6, int), 1.0, 6e-7))


def test_a_pure_budget_refuses_every_approximate_mechanism():
    v = vault(9.0)
    for mechanism in (
        OneHotGaussian(1.0, 1e-6),
        GroupHistogram(np.zeros(6, int), 1.0, 1e-6),
        LinearQuery(np.ones((6, 2)), 1.0, 1e-6),
    ):
        with pytest.raises(ldp.BudgetExceeded, match="only purely private"):
            v.release(mechanism)
    assert v.ledger.entries() == []


def test_a_renyi_budget_fits_more_gaussian_releases():
    def spend_all(v):
        for i in range(100):
            v.release(GroupHistogram(np.full(6, i), 0.2, 1e-6))

    by_sum, v = vault(2.0, 1e-5), vault(2.0, 1e-5, composition="rdp")
    for each in (by_sum, v):
        with pytest.raises(ldp.BudgetExceeded):
            spend_all(each)
    by_renyi = len(v.ledger.entries())
    assert len(by_sum.ledger.entries()) == 10 < by_renyi
    assert v.guarantee().epsilon <= 2.0
    # One Gaussian release of that many units is what it amounts to: the filter may not claim less.
    sigma = GroupHistogram(np.zeros(6, int), 0.2, 1e-6).sigma
    assert v.guarantee().epsilon >= GaussianLoss(sigma, (2 * by_renyi) ** 0.5).epsilon(1e-5)


def test_a_renyi_budget_takes_pure_mechanisms_and_reports_nothing_before_the_first():
    v = vault(2.0, 1e-5, composition="rdp")
    assert v.guarantee().epsilon == 0
    v.release(RR(0.5))
    assert 0 < v.guarantee().epsilon <= 2.0


def test_users_pay_for_all_their_rows():
    v = vault(2.0, users=["u", "u", "v", "v", "v", "w"])
    release = v.release(RR(0.5))
    assert (release.guarantee.unit, release.guarantee.epsilon) == ("user", 1.5)
    v.release(RR(1.0), row_selection=[5])  # w has spent 0.5 so far
    assert v.guarantee().epsilon == 1.5
    with pytest.raises(ldp.BudgetExceeded):
        v.release(RR(0.6), row_selection=[2])  # disjoint rows, same user
    with pytest.raises(ldp.BudgetExceeded):
        v.release(RR(0.3), row_selection=[2, 3])


def test_users_pay_for_counts_by_how_many_rows_they_can_move():
    users = ["u", "u", "u", "v", "w", "x"]
    geometric = vault(3.0, users=users).release(GroupHistogram(np.zeros(6, int), 0.5))
    assert geometric.guarantee.epsilon == 1.5
    gaussian = vault(9.0, 1e-5, users=users).release(GroupHistogram(np.zeros(6, int), 0.5, 1e-6))
    assert 1.2 < gaussian.guarantee.epsilon < 2.5


def test_origins_are_recorded_and_releases_of_another_vault_refused():
    v, other = vault(2.0), vault(2.0)
    first = v.release(RR(1.0))
    v.release(RRWithPrior(1.0, np.full((6, 2), 0.5)), derived_from=first)
    origins = [e.details["origin"] for e in v.ledger.entries()]
    assert origins == ["declared public", [first.entry]]
    with pytest.raises(ldp.InputError, match="not of this vault"):
        other.release(RR(1.0), derived_from=[first])
    assert other.ledger.entries() == []


def test_missing_labels_cost_nothing_and_say_nothing():
    space = ldp.LabelSpace(["no", "yes"], missing="public")
    v = ldp.Vault(["no", None, "yes"], space, ldp.Budget(1.0))
    release = v.release(RR(1.0))
    assert release.labels()[1] == -1
    assert v.ledger.entries()[0].details["released"] == 2
    with pytest.raises(ldp.InputError, match="nothing to release"):
        v.release(RR(1.0), row_selection=[1])


@pytest.mark.parametrize("rows", [[6], [-1], [0.5], [[0]], "all", np.ones(5, bool)])
def test_bad_rows_cost_nothing(rows):
    v = vault()
    with pytest.raises(ldp.InputError, match=r"[Rr]ows"):
        v.release(RR(1.0), row_selection=rows)
    assert v.ledger.entries() == []


def test_bad_requests():
    with pytest.raises(ldp.InputError, match="takes a mechanism"):
        vault().release("rr")
    with pytest.raises(ldp.InputError, match="LabelSpace and a Budget"):
        ldp.Vault(LABELS, ["no", "yes"], ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match="each of the 6 rows"):
        vault(users=["u"])
    for steps in ([], [[]], [1], [[RR(0.1), "rr"]]):
        with pytest.raises(ldp.InputError, match="at least one step"):
            vault().plan(*steps)
    assert vault().plan([RR(0.5), RR(0.5)]) is not None
    with pytest.raises(ldp.InputError, match="none missing"):
        vault(users=["u", None, 3, "v", None, "w"])
    with pytest.raises(ldp.InputError, match="not a ndarray") as caught:
        RRTopK(np.full((500, 2), 0.5), 1.0, 2)
    assert len(str(caught.value)) < 200


def test_labels_stay_inside():
    v = vault()
    assert "yes" not in repr(v).lower()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(v)


def test_the_ledger_is_charged_before_noise_is_drawn(monkeypatch):
    v = vault()
    monkeypatch.setattr(RR, "draw", lambda self, *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        v.release(RR(0.7))
    assert v.guarantee().epsilon == 0.7
    assert [e.status for e in v.ledger.entries()] == ["failed"]
    monkeypatch.undo()
    with pytest.raises(ldp.BudgetExceeded):  # why it failed is unknown: a redraw is charged again
        v.release(RR(0.7))


def test_an_interrupted_draw_is_not_charged_again(monkeypatch):
    """Nobody has seen what was drawn, and that a user interrupts does not depend on labels."""
    v = vault()

    def interrupt(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(RR, "draw", interrupt)
    with pytest.raises(KeyboardInterrupt):
        v.release(RR(0.7))
    assert v.guarantee().epsilon == 0.7
    monkeypatch.undo()
    assert (v.release(RR(0.7)).labels() >= 0).all()
    assert v.guarantee().epsilon == 0.7
    assert [e.status for e in v.ledger.entries()] == ["committed"]


def test_threads_share_one_release():
    v, seen = vault(1.0, labels=LABELS * 100), []
    threads = [threading.Thread(target=lambda: seen.append(v.release(RR(1.0)).labels())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert all((codes == seen[0]).all() for codes in seen)


def test_exact_epsilon_reaches_the_ledger():
    v = vault(1.0)
    v.release(RR(0.1))
    assert v.ledger.entries()[0].costs[1].epsilon == Fraction(1, 10)


def test_an_array_that_changes_later_does_not_change_the_mechanism():
    query = np.eye(6)
    mechanism = LinearQuery(query, 1.0, 1e-6)
    before = mechanism.sigma, mechanism.sensitivity, mechanism.parameters()
    query *= 1e6
    assert (mechanism.sigma, mechanism.sensitivity, mechanism.parameters()) == before
    with pytest.raises(ValueError, match="read-only"):
        mechanism.query[0] = 5
    groups, prior = np.zeros(6, int), np.full((6, 2), 0.5)
    histogram, response = GroupHistogram(groups, 1.0), RRWithPrior(1.0, prior)
    groups[:], prior[:] = 1, [1, 0]
    assert not histogram.groups.any()
    assert (response.prior == 0.5).all()


def test_whole_number_priors_rank_as_they_should():
    prior = np.array([[0, 0, 1]] * 6, np.uint8)
    v = ldp.Vault([0, 1, 2, 0, 1, 2], ldp.LabelSpace([0, 1, 2]), ldp.Budget(1.0))
    assert (v.release(RRTopK(1.0, prior, k=1)).labels() == 2).all()


def test_what_a_release_was_derived_from_is_part_of_its_guarantee():
    v = vault(9.0)
    loud = v.release(RR(8.0))
    echo = v.release(RRTopK(0.1, np.eye(2)[loud.labels()], k=1), derived_from=[loud])
    assert (echo.labels() == loud.labels()).all()
    assert echo.guarantee.epsilon == 8.1


def test_that_counts_also_where_it_is_not_named_again():
    v = vault(9.0)
    loud = v.release(RR(8.0))
    echo = v.release(RRTopK(0.1, np.eye(2)[loud.labels()], k=1), derived_from=[loud])
    assert v.guarantee_of([echo]).epsilon == v.guarantee_of([echo, loud]).epsilon == 8.1
    assert v.guarantee_of([echo.relabel(loud.labels())]).epsilon == 8.1
    assert v.guarantee_of([loud]).epsilon == 8.0


def test_what_is_named_at_a_second_request_counts_from_then_on():
    v = vault(9.0)
    loud = v.release(RR(8.0))
    asked = RRTopK(0.1, np.eye(2)[loud.labels()], k=1)
    forgotten, named = v.release(asked), v.release(asked, derived_from=[loud])
    assert (forgotten.guarantee.epsilon, named.guarantee.epsilon) == (0.1, 8.1)
    assert np.array_equal(forgotten.log_evidence(), named.log_evidence())
    assert [use.entry for use in named.lineage] == [forgotten.entry, loud.entry]
    assert v.guarantee().epsilon == 8.1


def test_a_ledger_that_is_opened_again_speaks_of_the_same_labels(tmp_path):
    known = {"ledger": tmp_path / "ledger.db", "identity": ldp.Identity("people", "ill", 6)}
    first = vault(2.0, **known).release(RR(1.0), row_selection=[0, 1, 2])
    second = vault(2.0, **known).release(RR(1.0), row_selection=[3, 4, 5])
    assert ldp.Release.concat(first, second).guarantee.epsilon == 1.0


def test_stages_on_other_rows_keep_one_epsilon_though_derived():
    v = vault(1.0)
    first = v.release(RR(1.0), row_selection=[0, 1, 2])
    second = v.release(RRWithPrior(1.0, np.full((6, 2), 0.5)), row_selection=[3, 4, 5], derived_from=[first])
    assert second.guarantee.epsilon == 1.0
    joined = ldp.Release.concat(first, second)
    assert joined.guarantee.epsilon == 1.0
    assert joined.guarantee.trust == "local"


def test_a_lowered_budget_binds_vaults_that_are_open_already(tmp_path):
    identity = ldp.Identity("people", "y", 6, "abc")
    early = vault(2.0, ledger=tmp_path / "l", identity=identity)
    early.release(RR(0.1))
    vault(0.5, ledger=tmp_path / "l", identity=identity)
    assert early.budget.epsilon == 0.5
    with pytest.raises(ldp.BudgetExceeded):
        early.release(RR(1.5))


def test_a_shared_ledger_needs_to_know_the_data():
    with pytest.raises(ldp.InputError, match="say which by identity"):
        vault(ledger=Ledger())


def test_several_releases_are_added_up_by_row_and_by_user():
    rows = np.arange(6)
    by_row = ldp.Vault(LABELS, SPACE, ldp.Budget(4.0))
    parts = [by_row.release(ldp.RandomizedResponse(1.0), row_selection=rows[rows % 2 == i]) for i in (0, 1)]
    by_row.release(OneHotLaplace(1.0))
    assert by_row.guarantee_of(parts).epsilon == 1.0  # the third release is not among them
    shared = ldp.Vault(LABELS, SPACE, ldp.Budget(4.0), users=[0, 0, 1, 1, 2, 2])
    parts = [shared.release(ldp.RandomizedResponse(1.0), row_selection=rows[rows % 2 == i]) for i in (0, 1)]
    assert shared.guarantee_of(parts).epsilon == 2.0  # each user is in both
    own = ldp.Vault(LABELS, SPACE, ldp.Budget(4.0), users=[0, 1, 2, 3, 4, 5])
    parts = [own.release(ldp.RandomizedResponse(1.0), row_selection=rows[rows % 2 == i]) for i in (0, 1)]
    assert own.guarantee_of(parts).epsilon == 1.0
    with pytest.raises(ldp.InputError, match="of this vault"):
        own.guarantee_of([by_row.release(OneHotLaplace(1.0))])


# Users whose labels share an epsilon.

OWNERS = [0, 0, 0, 1, 1, 2]


def test_a_shared_mechanism_costs_the_user_what_it_was_asked_for():
    v = vault(1.0, users=OWNERS)
    part = v.scaled_to_unit(RR(0.5), [1, 3, 4])  # one row of the first user, two of the second
    assert part.epsilon == 0.25
    assert v.scaled_to_unit(RR(0.5), [0, 3]).epsilon == 0.5
    release = v.release(v.scaled_to_unit(RR(0.75)))
    assert (release.guarantee.epsilon, v.guarantee().epsilon) == (0.75, 0.75)
    alone = v.guarantee_of([release], unit="label")
    assert (alone.epsilon, alone.unit) == (0.25, "label")
    assert vault(1.0).scaled_to_unit(RR(0.5)).epsilon == 0.5


def test_a_single_label_has_another_guarantee_than_an_owner_of_several():
    v = vault(4.0, users=[0, 0, 1, 1, 2, 2])
    both = [v.release(RR(0.5), row_selection=[0, 2, 4]), v.release(OneHotLaplace(1.0))]
    assert v.guarantee_of(both).epsilon == 2.5
    assert v.guarantee_of(both, unit="label").epsilon == 1.5


def test_what_cannot_be_asked_for_cannot_be_shared():
    v = vault(1.0, 1e-6, users=OWNERS)
    with pytest.raises(ldp.InputError, match="a matrix of numbers with 6 rows"):
        v.scaled_to_unit(LinearQuery(np.ones(6), 1.0, 1e-6))


def test_who_owns_what_is_public():
    assert vault(1.0).users is None
    v = vault(1.0, users=list("bbaacc"))
    assert v.users.tolist() == [0, 0, 1, 1, 2, 2]
    assert v.cap_labels_per_user(1, seed=3).sum() == 3
    with pytest.raises(ldp.InputError, match="labels_per_user"):
        v.cap_labels_per_user(None)


def test_releases_of_different_users_cost_one_of_them_and_those_of_one_user_both():
    v = vault(9.0, users=OWNERS)
    first, second, third = (v.release(RR(1.0), row_selection=rows) for rows in ([0, 1], [3, 5], [2]))
    assert ldp.Release.concat(first, second).guarantee.epsilon == 2.0
    assert ldp.Release.concat(first, third).guarantee.epsilon == 3.0
    derived = v.release(RRWithPrior(1.0, np.full((6, len(SPACE)), 1 / len(SPACE))), [4], derived_from=[first])
    assert derived.guarantee.epsilon == 2.0


def test_delta_of_many_labels_reaches_the_ledger():
    users = np.repeat(np.arange(2), 60)
    v = ldp.Vault([0, 1] * 60, ldp.LabelSpace([0, 1]), ldp.Budget(1.0, 1e-6), users=users)
    release = v.release(v.scaled_to_unit(RR(1.0), delta=1e-6))
    assert release.guarantee.epsilon <= 1.0
    assert release.guarantee.delta == v.guarantee().delta == 1e-6
    assert release.epsilon > 1.5 / 60
    assert v.guarantee_of([release], unit="label").delta == 0.0
    strict = ldp.Vault([0, 1] * 60, ldp.LabelSpace([0, 1]), ldp.Budget(1.0), users=users)
    with pytest.raises(ldp.BudgetExceeded, match="delta 0"):
        strict.release(strict.scaled_to_unit(RR(1.0), delta=1e-6))


def test_a_renyi_budget_adds_up_the_labels_of_a_user():
    users, space = np.repeat(np.arange(2), 60), ldp.LabelSpace([0, 1])
    v = ldp.Vault([0, 1] * 60, space, ldp.Budget(4.0, 1e-6, "rdp"), users=users)
    v.release(RR(0.05))
    assert v.ledger.entries()[0].costs[60].rdp < PureLoss(60 * 0.05).rdp(v._account.filter.order) / 2


@dataclass(frozen=True, eq=False)
class Understated(ldp.RandomizedResponse):
    """It loses five times what its epsilon says, and its loss() does not hide it."""

    def loss(self, labels=1):
        return PureLoss(5 * self.epsilon * labels)


def test_a_mechanism_is_not_charged_less_than_it_loses():
    vault = ldp.Vault([0, 1], ldp.LabelSpace([0, 1]), ldp.Budget(100.0))
    with pytest.raises(ldp.InputError, match="Understated states epsilon 1 and loses 5 by its own loss:"):
        vault.release(Understated(1.0))
    slightly = type("Slightly", (Understated,), {"loss": lambda self, labels=1: PureLoss(1.001 * self.epsilon)})
    with pytest.raises(ldp.InputError, match=r"states epsilon 1 and loses 1\.001 by its own loss:"):
        vault.release(slightly(1.0))
    assert not vault.ledger.entries()


@dataclass(frozen=True, eq=False)
class Squared(GroupHistogram):
    """It loses more for several labels than as often what it loses for one."""

    def loss(self, labels=1):
        return PureLoss(self.epsilon * labels**2)


def test_users_are_charged_what_their_labels_lose_together():
    def opened():
        return ldp.Vault([0, 1] * 5, ldp.LabelSpace([0, 1]), ldp.Budget(100.0), users=[0] * 10)

    mechanism = Squared(np.zeros(10, int), 0.5)
    alone, planned = opened(), opened()
    alone.release(mechanism)
    planned.plan(mechanism)
    assert alone.guarantee().epsilon == planned.guarantee().epsilon == 50.0


def test_what_a_recipe_may_lose_is_a_plain_sum_whatever_the_budget_adds_up():
    vault = ldp.Vault([0, 1] * 50, ldp.LabelSpace([0, 1]), ldp.Budget(4.0, 1e-5, "rdp"))
    releases = [vault.release(RR(epsilon)) for epsilon in (0.25, 0.5)]
    together = vault.guarantee_of(releases)
    assert (together.epsilon, together.delta) == (0.75, 0.0)
    assert vault.guarantee().delta == 1e-5


def test_a_class_of_the_same_name_is_another_mechanism():
    vault = ldp.Vault([0, 1] * 50, ldp.LabelSpace([0, 1]), ldp.Budget(100.0))
    namesake = type("RandomizedResponse", (ldp.RandomizedResponse,), {"__module__": "elsewhere"})
    first, second = (vault.release(kind(1.0)) for kind in (ldp.RandomizedResponse, namesake))
    assert first.entry != second.entry
    assert second.mechanism == "elsewhere.RandomizedResponse"


@pytest.mark.parametrize(("first", "second"), [(None, "a"), ("a", None)])
def test_an_interrupted_request_is_not_drawn_again_for_a_label_of_another_name(path, monkeypatch, first, second):
    """What label "a" releases under a reservation without a name would be returned for label "b" later."""

    def named(label):
        return open_vault(path, 3.0, identity=identity(label=label))

    def interrupted(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RR, "draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            named(first).release(RR(1.0))
    assert named(first).was_released(RR(1.0))
    assert not named(second).was_released(RR(1.0))
    drawn = named(second).release(RR(1.0))
    assert [(e.label, e.status) for e in Ledger(path).entries()] == [
        (first, "reserved"),
        (second, "committed"),
    ]
    other = named("b").release(RR(1.0))
    assert (other.entry == drawn.entry) == (second is None)


def test_what_would_hold_with_one_more_release():
    v = vault(9.0, 1e-5, users=OWNERS)  # users with three, two and one rows
    first = v.release(RR(0.5), row_selection=[0, 3])
    more = GroupHistogram(np.zeros(6, int), 1.0)
    assert v.guarantee_of([first], more).epsilon == 0.5 + 3.0
    assert v.guarantee_of([first], more, [3, 4]).epsilon == 0.5 + 2.0
    assert v.guarantee_of([first], more, [5]).epsilon == 1.0
    assert v.guarantee_of([first], more, [5], unit="label").epsilon == 1.0
    assert v.guarantee_of([first], more, unit="label").epsilon == 1.5
    assert v.guarantee_of([first], more, [0, 1], unit="label").epsilon == 1.5  # no user owns one of these rows alone
    assert v.guarantee_of([first], OneHotGaussian(1.0, 1e-6), [5]).delta == 1e-6
    assert v.guarantee().epsilon == 0.5  # nothing of it was charged


def test_what_several_releases_guarantee_says_whom_to_trust_and_how_it_was_added_up():
    v = vault(9.0, users=OWNERS)
    local, counted = v.release(RR(0.5)), v.release(GroupHistogram(np.zeros(6, int), 1.0))
    alone, both = v.guarantee_of([local]), v.guarantee_of([local, counted])
    assert (alone.trust, both.trust) == ("local", "central")
    assert (alone.unit, alone.derivation) == ("user", "RandomizedResponse, added up by user")
    assert v.guarantee_of([local], GroupHistogram(np.zeros(6, int), 2.0)).trust == "central"
    assert v.guarantee_of([local], OneHotLaplace(2.0)).trust == "local"
    assert v.guarantee_of([local], OneHotLaplace(2.0)).derivation.startswith("RandomizedResponse + OneHotLaplace")
    assert v.guarantee_of([local, counted], unit="label").unit == "label"


def test_a_joined_release_rests_on_all_of_its_entries():
    v = vault(9.0)
    parts = [v.release(RR(0.5), row_selection=[0, 1]), v.release(RR(1.0), row_selection=[2, 3])]
    joined = parts[0].concat(*parts)
    assert v.guarantee_of([joined]).epsilon == 1.0
    assert v.guarantee_of([replace(joined, lineage=())]).epsilon == 1.0
    assert v.guarantee_of([joined], RR(2.0), [0]).epsilon == 2.5


def test_a_plan_for_some_rows_costs_the_others_nothing():
    v = vault(2.0)
    v.plan(RR(0.5), row_selection=[0, 1])
    assert (v.remaining([0]), v.remaining([2])) == ((1.5, 0.0), (2.0, 0.0))
    v.plan(RR(0.5), row_selection=[2])  # another plan, though its steps are the same
    assert v.remaining([2]) == (1.5, 0.0)


def test_rows_that_take_part_are_the_labelled_ones_of_a_seed():
    space = ldp.LabelSpace(["no", "yes"], missing="public")
    v = ldp.Vault([*LABELS[:5], None], space, ldp.Budget(1.0), users=[0, 0, 0, 1, 1, 1])
    for seed in range(8):
        assert np.array_equal(v.cap_labels_per_user(1, seed), cap_labels_per_user(v.users, v.labeled_mask, 6, 1, seed))
    assert np.array_equal(v.cap_labels_per_user(1), v.cap_labels_per_user(1, 0))
    assert len({tuple(v.cap_labels_per_user(1, seed)) for seed in range(8)}) > 1
    assert not v.cap_labels_per_user(3)[5]


def test_another_label_of_the_same_rows_was_not_released(tmp_path):
    def opened(label):
        own = ldp.Identity("people", label, 6, "abc")
        return ldp.Vault(LABELS, SPACE, ldp.Budget(4.0), ledger=tmp_path / "l", identity=own)

    first = opened("income").release(RR(0.5))
    assert opened("income").was_released(RR(0.5))
    assert not opened("illness").was_released(RR(0.5))
    assert opened("illness").release(RR(0.5)).entry != first.entry


def test_a_vault_knows_which_releases_it_drew_and_which_it_read_again(tmp_path):
    def opened():
        return ldp.Vault(LABELS, SPACE, ldp.Budget(4.0), ledger=tmp_path / "l", identity=ldp.Identity("a", "b", 6))

    mine, theirs = opened(), opened()
    first = mine.release(RR(0.5))
    mine.release(RR(0.5))
    theirs.release(RR(0.5))
    assert (mine.drawn_entries, mine.reused_entries) == ((first.entry,), ())
    assert (theirs.drawn_entries, theirs.reused_entries) == ((), (first.entry,))


@dataclass(frozen=True, eq=False)
class OfRecords(ldp.RandomizedResponse):
    """A response that claims to protect whole records."""

    def protects(self, unit):
        return "record" if unit == "label" else unit

    def draw(self, codes, common, bits):
        return super().draw(codes, common | {"guarantee": replace(common["guarantee"], unit="record")}, bits)


def test_what_protects_records_still_does_when_it_is_read_again():
    v = vault(9.0)
    base, first = v.release(OfRecords(0.25)), v.release(OfRecords(0.5))
    again = v.release(OfRecords(0.5), derived_from=base)
    assert again.entry == first.entry
    assert (again.guarantee.unit, again.guarantee.epsilon) == ("record", 0.75)
    assert ["released" in entry.details for entry in v.ledger.entries()] == [False, False]  # who has a label is secret
    with pytest.raises(ldp.InputError, match="cannot be derived from a release that protects labels alone"):
        v.release(OfRecords(0.75), derived_from=v.release(RR(0.5)))


def test_a_row_set_that_is_paid_for_cannot_be_written_to():
    v = vault(1.0)
    assert not v._to_row_mask([0, 1]).flags.writeable


def test_the_guarantee_says_whom_to_trust_and_how_it_was_added_up():
    v = vault(9.0)
    v.release(RR(0.5))
    assert (v.guarantee().trust, v.guarantee().derivation) == ("local", "sum over 1 ledger entries")
    v.release(GroupHistogram(np.zeros(6, int), 1.0))
    assert (v.guarantee().trust, v.guarantee().derivation) == ("central", "sum over 2 ledger entries")


@pytest.mark.parametrize("users", [None, OWNERS])
def test_the_first_release_must_fit_the_budget_as_well(users):
    v = vault(1.0, users=users)
    for rows in (None, [0], [5]):
        with pytest.raises(ldp.BudgetExceeded):
            v.release(RR(1.001), row_selection=rows)
        with pytest.raises(ldp.BudgetExceeded):
            v.plan(RR(0.75), RR(0.75), row_selection=rows)
    assert not v.ledger.entries()
    v.release(RR(1.0), row_selection=[5])


def test_what_is_derived_from_records_tells_no_digest():
    """Who has all rows but one could try what that one is."""
    v = vault(9.0)
    count = GroupHistogram(np.arange(6) % 2, 0.5)
    of_labels, of_records = (
        v.release(count, row_selection=[0, 1]),
        v.release(count, derived_from=v.release(OfRecords(0.25))),
    )
    assert "sha256" in of_labels.parameters["groups"]
    assert "groups" not in of_records.parameters
    assert of_records.parameters["epsilon"] == 0.5
    assert "groups" not in v.ledger.entries()[-1].details["parameters"]


def test_rows_that_were_not_asked_for_are_not_in_a_release():
    v = vault(2000.0)
    some, every = v.release(RR(1.0), row_selection=[0, 1]), v.release(RR(2.0))
    assert (some.codes[2:] == -1).all()
    assert (every.codes >= 0).all()
    assert some.codes.dtype == every.codes.dtype
    counted = v.release(GroupHistogram(np.zeros(6, int), 900.0), row_selection=[0, 1])
    assert counted.counts.sum() == 2


def test_long_work_gets_the_labels_that_were_asked_for_and_is_done_once():
    given = []

    class Prepared(RR):
        def prepare(self, codes, space, memory):
            given.append((codes.tolist(), space, memory))
            return self

    v = vault(9.0)
    for _ in range(2):
        v.release(Prepared(0.5), row_selection=[0, 1])
    v.release(Prepared(0.25))
    assert [codes for codes, _, _ in given] == [[0, 1, -1, -1, -1, -1], [0, 1, 1, 0, 1, 0]]
    assert all(space is v.space for _, space, _ in given)
    assert given[0][2] is given[1][2] is not None


def test_a_release_says_what_it_rests_on_and_whom_to_trust():
    v = vault(9.0)
    first, count = v.release(RR(0.5)), v.release(GroupHistogram(np.zeros(6, int), 0.25))
    assert (first.guarantee.trust, first.guarantee.derivation) == ("local", "RandomizedResponse: PureLoss")
    one, other = (v.release(RR(epsilon), derived_from=it) for epsilon, it in ((1.0, first), (2.0, count)))
    assert (one.guarantee.trust, other.guarantee.trust) == ("local", "central")
    uses = "RandomizedResponse: PureLoss, with the 1 uses of labels that its inputs came from"
    assert one.guarantee.derivation == other.guarantee.derivation == uses
    joined = first.concat(first, v.release(RR(0.75), row_selection=[0]))
    assert v.release(RR(1.5), derived_from=joined).guarantee.epsilon == 0.5 + 0.75 + 1.5
    assert v.ledger.entries()[-1].details["origin"] == joined.entry.split(",")


def of(folder, label="income"):
    """A vault whose ledger is a file, for one of several labels of the same rows."""
    own = ldp.Identity("people", label, 6, "abc")
    return ldp.Vault(LABELS, SPACE, ldp.Budget(4.0), ledger=folder / "l", identity=own)


def test_what_another_process_drew_during_long_work_is_not_drawn_again(tmp_path):
    meanwhile = []

    class Long(RR):
        def prepare(self, codes, space, memory):
            if not meanwhile:
                meanwhile.append(None)
                meanwhile.append(of(tmp_path).release(Long(0.5)))
            return self

    v = of(tmp_path)
    base = v.release(RR(0.25))
    mine = v.release(Long(0.5), derived_from=base)
    assert mine.entry == meanwhile[1].entry
    assert (mine.guarantee.epsilon, v.guarantee().epsilon) == (0.75, 0.75)
    assert v.reused_entries == (mine.entry,)


def test_a_draw_that_was_interrupted_for_one_label_pays_for_no_other(tmp_path, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RR, "draw", dies)
        with pytest.raises(KeyboardInterrupt):
            of(tmp_path, "income").release(RR(0.5))
    of(tmp_path, "illness").release(RR(0.5))
    assert of(tmp_path).guarantee().epsilon == 1.0
    of(tmp_path, "income").release(RR(0.5))
    assert of(tmp_path).guarantee().epsilon == 1.0  # it was paid for


def test_a_release_names_the_rows_and_the_data_that_it_used():
    v = vault(9.0)
    (use,) = v.release(RR(0.5), row_selection=[0, 2]).lineage
    assert (use.n_rows, use.ledger_mark) == (6, v._account.mark)
    assert unpack_rows(use.packed_rows, 6).tolist() == [True, False, True, False, False, False]


class WithoutDelta(LossSum):
    """It needs a delta, and has none to state."""

    def loss(self, labels=1):
        return ApproximateLoss(self.epsilon, 1e-6)


def test_a_mechanism_that_states_no_delta_must_be_purely_private():
    v = ldp.Vault([0.0, 1.0], ldp.LabelSpace.range(0, 1, 1), ldp.Budget(9.0, 1e-5))
    v.release(LossSum(np.zeros(2), 1.0))
    with pytest.raises(ldp.InputError, match="state what it loses, with a delta if it needs one"):
        v.release(WithoutDelta(np.zeros(2), 1.0))


@dataclass(frozen=True, eq=False)
class Dealt(ldp.RandomizedResponse):
    """It treats some rows as those of one user."""

    users: tuple[int, ...] = ()


def test_a_user_of_the_vault_is_one_user_of_the_mechanism():
    v = vault(9.0, users=[0, 0, 1, 1, 2, 2])
    v.release(Dealt(0.5, users=(0, 0, 0, 0, 1, 1)))
    with pytest.raises(ldp.InputError, match="would reach several teachers"):
        v.release(Dealt(0.5, users=(0, 1, 2, 2, 3, 3)))
    vault(9.0).release(Dealt(0.5, users=(0, 0, 0, 1, 1, 1)))


def test_rows_are_the_same_by_number_and_by_mask():
    v, mask = vault(9.0), np.array([True, False, True, False, False, False])
    first = v.release(RR(0.5), row_selection=mask)
    mask[:] = True
    assert first.row_mask.tolist() == [True, False, True, False, False, False]
    assert v.release(RR(0.5), row_selection=[2, 0]).entry == first.entry


def test_a_request_is_known_by_what_it_says_in_any_order():
    assert hash_request({"a": 1, "b": {"c": 2, "d": 3}}) == hash_request({"b": {"d": 3, "c": 2}, "a": 1})
    assert hash_request({"a": 1}) != hash_request({"a": 2})


def test_only_releases_and_models_can_be_derived_from():
    v = vault(9.0)
    with pytest.raises(ldp.InputError, match="derived_from takes the releases and models"):
        v.release(RR(0.5), derived_from=["the first release"])
    assert v.guarantee().epsilon == 0
