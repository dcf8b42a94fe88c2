import math
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.accounting import costs
from labeldp.accounting.costs import (
    Cost,
    LabelUse,
    Spending,
    cap_labels_per_user,
    encode_users,
    expand_to_units,
    joint_cost,
    pack_rows,
    rows_per_unit,
)

ROWS = 8


@st.composite
def histories(draw):
    owner = draw(st.none() | st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS).map(np.array))
    if owner is not None:
        owner = np.unique(owner, return_inverse=True)[1]
    masks = st.none() | st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).filter(any).map(np.array)
    releases = draw(st.lists(st.tuples(masks, st.integers(1, 9)), max_size=5))
    return owner, releases, draw(masks)


@given(histories())
def test_each_unit_pays_for_its_own_rows(history):
    owner, releases, queried = history
    spending = Spending(ROWS, owner)
    units = np.arange(ROWS) if owner is None else owner
    totals = dict.fromkeys(units.tolist(), Fraction(0))
    for mask, tenths in releases:
        # Not linear in the number of rows, as for Gaussian counts.
        costs = {m: Cost(epsilon=Fraction(tenths * m * m, 10)) for m in rows_per_unit(mask, owner)}
        spending.add(mask, costs)
        chosen = units if mask is None else units[mask]
        for unit in totals:
            m = int((chosen == unit).sum())
            totals[unit] += Fraction(tenths * m * m, 10)
    assert spending.max_cost().epsilon == max(totals.values())
    touched = units if queried is None else units[queried]
    assert spending.max_cost(queried).epsilon == max(totals[u] for u in touched.tolist())


OWNERS = st.lists(st.integers(0, 9), min_size=1, max_size=60).map(lambda who: np.unique(who, return_inverse=True)[1])


@given(OWNERS, st.integers(1, 5), st.integers(0, 99), st.data())
def test_each_user_keeps_as_many_labeled_rows_as_allowed(owner, max_labels, seed, data):
    marks = data.draw(st.none() | st.lists(st.booleans(), min_size=owner.size, max_size=owner.size))
    labeled = None if marks is None else np.array(marks)
    selected = cap_labels_per_user(owner, labeled, owner.size, max_labels, seed)
    counted = np.ones(owner.size, bool) if labeled is None else labeled
    for user in set(owner.tolist()):
        own = (owner == user) & counted
        assert (selected & own).sum() == min(own.sum(), max_labels)
    assert not selected[~counted].any()
    assert np.array_equal(selected, cap_labels_per_user(owner, labeled, owner.size, max_labels, seed))


def test_every_row_of_a_user_is_equally_likely_to_be_selected():
    owner = np.array([0, 0, 0, 0, 1])
    selected = np.sum([cap_labels_per_user(owner, None, 5, 1, seed) for seed in range(2000)], axis=0)
    assert selected[4] == 2000
    assert np.abs(selected[:4] - 500).max() < 90


def test_where_users_own_several_rows_a_number_must_be_given_and_the_choice_is_shown():
    owner = np.repeat(np.arange(10), [1, 1, 1, 1, 2, 3, 3, 4, 6, 30])
    said = (
        r"up to 30 rows: .*labels_per_user.* Of 52 rows, 1 keeps 10, 2 keeps 16, 5 keeps 26, 10 keeps 32, 20 keeps 42"
    )
    with pytest.raises(ldp.InputError, match=said + ", and 30 keeps all"):
        cap_labels_per_user(owner, None, 52, None)
    assert cap_labels_per_user(np.arange(5), None, 5, None).all()
    assert cap_labels_per_user(None, None, 5, None).all()
    only_one_is_labeled = np.array([True, False, True, False])
    selected = cap_labels_per_user(np.array([0, 0, 1, 1]), only_one_is_labeled, 4, None)
    assert np.array_equal(selected, only_one_is_labeled)


@pytest.mark.parametrize("max_labels", [0, -1, True, 1.5, "2"])
def test_bad_numbers_of_labels(max_labels):
    with pytest.raises(ldp.InputError, match="a whole number from 1"):
        cap_labels_per_user(np.array([0, 0]), None, 2, max_labels)


def test_a_number_of_labels_needs_users():
    with pytest.raises(ldp.InputError, match="is for users"):
        cap_labels_per_user(None, None, 5, 2)


def test_all_rows_of_touched_users():
    owner = np.array([0, 1, 0, 2, 2])
    assert expand_to_units(np.array([1, 0, 0, 0, 0], bool), owner).tolist() == [True, False, True, False, False]
    assert expand_to_units(np.array([1, 1, 0, 1, 0], bool), owner) is None
    assert expand_to_units(None, owner) is None
    mask = np.array([1, 0, 0, 0, 0], bool)
    assert expand_to_units(mask, None) is mask


@pytest.mark.parametrize(
    "users",
    [
        np.array([1.0, np.nan, 2.0]),
        np.array(["2020", "NaT", "2021"], "datetime64[Y]"),
        np.array(["a", None, "b"], object),
        np.array(["a", np.nan, "b"], object),
        np.array([None, None, None]),
    ],
    ids=str,
)
def test_a_missing_user_is_refused(users):
    with pytest.raises(ldp.InputError, match="with none missing"):
        encode_users(users, 3)


def test_encoded_users_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        encode_users(["a", "b", "a"], 3)[0] = 1


@pytest.mark.parametrize("held", [list, np.array, lambda names: np.array(names, object), pl.Series, pd.Series])
def test_owners_have_the_same_numbers_however_they_are_held(held):
    assert encode_users(held(["b", "a", "b", "c"]), 4).tolist() == [0, 1, 0, 2]


def test_users_of_types_without_an_order_are_distinguished_by_value():
    couple, other = frozenset({"anna", "bob"}), frozenset({"carl"})
    names = np.empty(6, object)
    names[:] = [couple, other] * 3
    assert encode_users(names, 6).tolist() == [0, 1] * 3
    names[:] = [{"anna"}, {"bob"}] * 3
    with pytest.raises(ldp.InputError, match="users must be of one type"):
        encode_users(names, 6)


def use(entry, epsilon, rows=None, count=ROWS, data="a"):
    mask = None if rows is None else np.isin(np.arange(count), rows)
    return LabelUse(entry, Cost(Fraction(epsilon)), pack_rows(mask), count, data)


@given(st.lists(st.tuples(st.integers(1, 9), st.none() | st.sets(st.integers(0, ROWS - 1), min_size=1)), max_size=5))
def test_uses_of_one_data_set_cost_its_worst_row(drawn):
    uses = [use(str(i), epsilon, rows and list(rows)) for i, (epsilon, rows) in enumerate(drawn)]
    worst = max(sum(e for e, rows in drawn if rows is None or row in rows) for row in range(ROWS))
    assert joint_cost([*uses, *uses]).epsilon == worst
    assert joint_cost(uses, parallel=False).epsilon == sum(epsilon for epsilon, _ in drawn)


def test_uses_of_several_data_sets_add_up_whatever_their_rows_and_order():
    few, many = use("1", 1, [0], count=2, data="a"), use("2", 8, [2999], count=3000, data="b")
    alike = use("3", 2, [1], count=2, data="c")
    assert joint_cost([few, many]).epsilon == joint_cost([many, few]).epsilon == 9
    assert joint_cost([few, alike]).epsilon == 3


def test_uses_of_one_entry_cost_it_once_on_all_of_their_rows():
    plan, part, other = use("p", 3), use("p", 3, [0, 1]), use("q", 2, [1, 2])
    assert joint_cost([plan, plan, part]).epsilon == joint_cost([part, plan]).epsilon == 3
    assert joint_cost([plan, other]).epsilon == joint_cost([part, other, plan]).epsilon == 5
    assert joint_cost([use("p", 3, [0]), use("p", 3, [2]), other]).epsilon == 5  # row 2
    assert joint_cost([use("p", 3, [0]), other, use("p", 4, [3])]).epsilon == 4
    assert joint_cost([plan, use("p", 3, data="b")]).epsilon == 6  # an entry of another ledger


@pytest.mark.parametrize("rows", [None, [1, 5]])
def test_a_use_is_read_back_and_an_older_one_counts_for_all_rows(rows):
    written = use("x", 3, rows)
    assert LabelUse.from_json(written.to_json()) == written
    older = LabelUse.from_json(written.to_json()[:3])
    assert joint_cost([older, use("y", 2, [7])]).epsilon == 5


def test_rows_without_a_label_are_not_selected():
    labeled = np.array([True, False, True])
    selected = cap_labels_per_user(None, labeled, 3, None)
    assert selected.tolist() == [True, False, True]
    selected[:] = True
    assert labeled.tolist() == [True, False, True]  # they stay the vault's own
    assert cap_labels_per_user(None, None, 3, None).all()
    assert cap_labels_per_user(None, None, 3, None).dtype == bool
    nobody = cap_labels_per_user(np.array([0, 1, 1]), np.zeros(3, bool), 3, None)
    assert nobody.tolist() == [False] * 3


def test_few_row_sets_are_cached_and_all_are_counted(monkeypatch):
    """Otherwise each new row set would take time in the number of all earlier ones."""
    monkeypatch.setattr(costs, "_MAX_CACHED_ROW_SETS", 2)
    generator, adds = np.random.default_rng(0), costs.Spending(20)
    masks = [generator.random(20) < 0.5 for _ in range(5)]
    expected = np.zeros(20, int)
    for place in generator.integers(0, 5, 30).tolist():
        adds.add(masks[place], {1: Cost(Fraction(1))}, str(place))
        expected += masks[place]
    assert len(adds._cached_counts) == 2
    for row in range(20):
        assert adds.max_cost(np.arange(20) == row).epsilon == expected[row]


def test_a_user_keeps_the_first_rows_of_a_shuffled_list():
    owner, labeled = np.random.default_rng(1).integers(0, 40, 1000), np.arange(1000) % 3 > 0
    for seed in (0, 7):
        order = np.random.default_rng(seed).permutation(np.flatnonzero(labeled))
        expected = np.zeros(1000, bool)
        for user in range(40):
            expected[[row for row in order if owner[row] == user][:2]] = True
        assert np.array_equal(cap_labels_per_user(owner, labeled, 1000, 2, seed), expected)
    assert np.array_equal(cap_labels_per_user(owner, labeled, 1000, 2), cap_labels_per_user(owner, labeled, 1000, 2, 0))


def test_a_missing_number_among_objects_is_refused():
    with pytest.raises(ldp.InputError, match="none missing"):
        encode_users(np.array([1.0, float("nan")], object), 2)


def test_a_use_of_an_older_version_has_no_data_set():
    cost = Cost(Fraction(1, 3), Fraction(1, 10**6))
    assert LabelUse.from_json(["e", cost.to_json(), None]) == LabelUse("e", cost, None, 0, "")


def test_costs_are_read_back_and_none_is_below_zero():
    for cost in (Cost(), Cost(Fraction(1, 3), Fraction(1, 10**6), Fraction(2, 7)), Cost(math.inf)):
        assert Cost.from_json(cost.to_json()) == cost
    for bad in (["-1", "0", "0"], ["0", "-1/7", "0"], ["0", "0", "-1/7"]):
        with pytest.raises(ValueError, match="below zero"):
            Cost.from_json(bad)


def test_so_many_equal_costs_are_their_sum():
    cost = Cost(Fraction(1, 3), Fraction(1, 10**6), Fraction(2, 7))
    assert cost * 3 == cost + cost + cost


def test_how_many_rows_each_unit_owns():
    assert Spending(3).counts(None).tolist() == [1, 1, 1]
    assert Spending(3).counts(None).dtype == np.int64
    assert Spending(3).counts(np.array([True, False, True])).tolist() == [1, 0, 1]
    shared = Spending(4, np.array([0, 1, 1, 2]))
    assert shared.counts(None).tolist() == [1, 2, 1]
    assert shared.counts(np.array([True, True, False, False])).tolist() == [1, 1, 0]
    assert Spending(0, np.array([], np.int64)).counts(None).size == 0


def test_packed_rows_are_the_same_bytes_in_every_version():
    """Ledgers name row sets by a digest of them, and know requests by it."""
    assert pack_rows(np.arange(800) % 3 == 0)[:2] == b"\x78\x01"  # zlib at its fastest level
    assert pack_rows(None) is None


@given(histories(), st.booleans())
def test_what_a_further_release_would_cost_is_what_it_costs_when_it_is_added(history, named):
    owner, releases, mask = history

    def key(rows):
        return None if not named else "all" if rows is None else str(rows.tolist())

    spending = Spending(ROWS, owner)
    for rows, epsilon in releases:
        spending.add(rows, {m: Cost(Fraction(m * epsilon), Fraction(m)) for m in range(1, ROWS + 1)}, key(rows))
    more = {m: Cost(Fraction(7 * m), Fraction(m), Fraction(m)) for m in range(1, ROWS + 1)}
    before, after = spending.max_cost(mask, key=key(mask)), spending.max_cost(mask, more, key(mask))
    assert before == spending.max_cost(mask)
    spending.add(mask, more, key(mask))
    touched = spending.max_cost(mask, key=key(mask))
    assert after == touched
    assert after.epsilon >= before.epsilon + 7


def test_no_rows_cost_nothing():
    spending = Spending(3)
    spending.add(None, {1: Cost(Fraction(1))})
    assert spending.max_cost(np.zeros(3, bool)) == Cost()
    assert rows_per_unit(np.zeros(3, bool), np.array([0, 0, 1])) == [1]
