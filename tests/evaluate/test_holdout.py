import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.evaluate import split_rows


@settings(max_examples=60)
@given(st.integers(30, 500), st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 2**32))
def test_rows_are_dealt_out_once_in_the_shares_asked(rows, weights, seed):
    shares = np.array(weights) / sum(weights)
    parts = split_rows(rows, shares, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    assert all(abs(part.size - rows * share) <= 1 for part, share in zip(parts, shares, strict=True))
    assert all((np.diff(part) > 0).all() for part in parts)


def test_the_seed_decides():
    first, again, other = (split_rows(100, (0.5, 0.5), seed)[0].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_every_row_can_land_in_every_part():
    landed = np.zeros((20, 2))
    for seed in range(400):
        for i, part in enumerate(split_rows(20, (0.25, 0.75), seed)):
            landed[part, i] += 1
    assert landed[:, 0] == pytest.approx(100, abs=45)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_a_user_touches_one_part(seed):
    users = np.random.default_rng(seed).choice(list("abcdefghijklmnopqrstuvwxyz"), 300)
    parts = split_rows(300, (0.6, 0.2, 0.2), seed, users=users)
    owners = [set(users[part]) for part in parts]
    assert sum(map(len, owners)) == len(set(users))
    assert sum(part.size for part in parts) == 300
    largest = max(np.unique(users, return_counts=True)[1])
    assert abs(parts[0].size - 180) <= largest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, (0.5, 0.4), 0), "add up to 1"),
        ((10, (1.5, -0.5), 0), "above zero"),
        ((10, (), 0), "add up to 1"),
        ((3, (0.9, 0.05, 0.05), 0), "empty"),
        ((10, (0.5, 0.5), 0, ["a"] * 10), "empty"),
        ((10, (0.5, 0.5), 0, ["a"] * 9), "each of the 10 rows"),
        ((2, (0.5, 0.5), 0, np.array(["a", None], object)), "one type"),
    ],
)
def test_bad_splits(arguments, message):
    with pytest.raises(ldp.InputError, match=message):
        split_rows(*arguments)
