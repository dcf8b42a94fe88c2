import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import labeldp as ldp
from labeldp.mechanisms import DiscreteLaplace, RROnBins, UnbiasedBins
from labeldp.releases import NoisyBins, NoisyGrid, NumericResponses

SPACE = ldp.LabelSpace.range(0, 10, 1)
GRID = np.arange(11.0)
PRIOR = np.exp(-GRID / 3) / np.exp(-GRID / 3).sum()
ROWS = 30
LABELS = GRID[np.arange(ROWS) % 11]
BOTH = np.array([PRIOR, PRIOR[::-1]])
MECHANISMS = {
    "bins": RROnBins(2.0, PRIOR),
    "bins by group": RROnBins(2.0, BOTH, loss="absolute", groups=np.arange(ROWS) % 2),
    "points": UnbiasedBins(2.0, PRIOR),
    "points by group": UnbiasedBins(2.0, BOTH, groups=np.arange(ROWS) % 2),
    "noise": DiscreteLaplace(2.0),
}
EVERY = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())


def release(mechanism, rows=None, labels=LABELS):
    return ldp.Vault(labels, SPACE, ldp.Budget(9.0)).release(mechanism, row_selection=rows)


@EVERY
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("rows", [None, [0, 3, 4]], ids=["all rows", "some rows"])
def test_what_is_saved_is_loaded(tmp_path, mechanism, rows, suffix):
    original = release(mechanism, rows)
    original.save(tmp_path / f"release{suffix}")
    loaded = ldp.Release.load(tmp_path / f"release{suffix}")
    assert type(loaded) is type(original)
    for name in ("space", "guarantee", "mechanism", "parameters", "entry", "n_rows", "lineage"):
        assert getattr(loaded, name) == getattr(original, name)
    for name, array in original.arrays().items():
        assert np.array_equal(loaded.arrays()[name], array, equal_nan=array.dtype.kind == "f")
        assert loaded.arrays()[name].dtype == array.dtype
    assert np.array_equal(loaded.log_evidence(), original.log_evidence())
    assert np.array_equal(loaded.values(), original.values(), equal_nan=True)
    assert np.array_equal(loaded.labels(), original.labels())


@EVERY
def test_a_ledger_gives_back_what_was_drawn(tmp_path, mechanism):
    identity = ldp.Identity("people", "age", ROWS)
    first, again = (
        ldp.Vault(LABELS, SPACE, ldp.Budget(2.0), ledger=tmp_path / "ledger", identity=identity).release(mechanism)
        for _ in range(2)
    )
    assert np.array_equal(first.values(), again.values())


@EVERY
def test_likelihoods_sum_to_one_over_all_responses(mechanism):
    """The likelihood of every label, summed over all responses, is 1."""
    original = release(mechanism)
    rows = np.arange(2)  # one of each group
    n_responses = 11 if isinstance(original, NoisyGrid) else (~np.isnan(original.outputs)).sum(axis=1)[[0, -1]].max()
    total = np.zeros((2, 11))
    for response in range(n_responses):
        codes = original.codes.copy()
        codes[rows] = response
        changed = replace(original, codes=codes)
        possible = ~np.isnan(changed.values(rows))
        total[possible] += np.exp(changed.log_evidence(rows[possible]))
    assert total == pytest.approx(1, rel=1e-5)


@EVERY
def test_a_label_is_among_the_best_supported_and_nearest_to_the_value(mechanism):
    original = release(mechanism)
    evidence, labels, values = original.log_evidence(), original.labels(), original.values()
    best = evidence >= evidence.max(axis=1, keepdims=True) - 1e-6
    assert best[np.arange(ROWS), labels].all()
    away = np.where(best, np.abs(values[:, None] - GRID), np.inf)
    assert np.abs(values - GRID[labels]) == pytest.approx(away.min(axis=1))


@EVERY
def test_rows_are_chosen_as_for_any_release(mechanism):
    original = release(mechanism, rows=np.arange(ROWS) > 3)
    assert np.isnan(original.values()[:4]).all()
    assert np.isfinite(original.values()[4:]).all()
    assert np.array_equal(original.values([7, 5]), original.values()[[7, 5]])
    filtered = original.keep(np.arange(ROWS) < 10)
    assert np.flatnonzero(np.isfinite(filtered.values())).tolist() == [4, 5, 6, 7, 8, 9]
    with pytest.raises(ldp.InputError, match="Choose rows"):
        original.values([ROWS])


@pytest.mark.parametrize("name", ["points", "points by group", "noise"])
def test_unbiased_numbers_are_right_on_average(name):
    copies = 20_000
    labels = np.repeat([0.0, 3.0, 10.0], copies)
    mechanism = MECHANISMS[name]
    if getattr(mechanism, "groups", None) is not None:
        mechanism = UnbiasedBins(2.0, BOTH, groups=np.arange(labels.size) % 2)
    numbers = release(mechanism, labels=labels).unbiased_values().reshape(3, copies)
    assert np.abs(numbers.mean(axis=1) - [0, 3, 10]).max() < 5 * numbers.std(axis=1).max() / copies**0.5


def test_bins_have_no_unbiased_numbers():
    with pytest.raises(ldp.InputError, match=r"no unbiased numbers.*UnbiasedBins"):
        release(MECHANISMS["bins"]).unbiased_values()


def test_numeric_releases_are_likelihoods_that_add():
    vault = ldp.Vault(LABELS, SPACE, ldp.Budget(9.0))
    parts = [vault.release(MECHANISMS["bins"]), vault.release(MECHANISMS["noise"])]
    assert [type(part) for part in parts] == [NoisyBins, NoisyGrid]
    assert all(isinstance(part, NumericResponses) and part.kind == "likelihood" for part in parts)
    joined = ldp.Release.concat(*parts)
    assert joined.log_evidence() == pytest.approx(sum(part.log_evidence() for part in parts), abs=1e-5)
    assert joined.guarantee.epsilon == 4.0


@EVERY
def test_bayes_rule_gains_by_the_evidence(mechanism):
    """What a learner does with evidence: the posterior mean has a smaller error than the best guess without it."""
    labels = np.random.default_rng(0).choice(GRID, ROWS * 300, p=PRIOR)
    groups = getattr(mechanism, "groups", None)
    if groups is not None:
        mechanism = type(mechanism)(2.0, BOTH, groups=np.arange(labels.size) % 2)
    posterior = np.exp(release(mechanism, labels=labels).log_evidence()) * PRIOR
    mean = posterior @ GRID / posterior.sum(axis=1)
    assert ((mean - labels) ** 2).mean() < 0.9 * ((labels - PRIOR @ GRID) ** 2).mean()


def test_a_learner_of_evidence_takes_numbers():
    from sklearn.linear_model import LogisticRegression

    from labeldp.learn.weighted_em import WeightedEM

    space = ldp.LabelSpace.range(0, 4, 1)
    x = np.random.default_rng(0).uniform(0, 1, (3000, 1))
    labels = np.floor(5 * x[:, 0])
    for mechanism in (RROnBins(2.0, np.full(5, 0.2)), UnbiasedBins(2.0, np.full(5, 0.2))):
        noisy = ldp.Vault(labels, space, ldp.Budget(2.0)).release(mechanism)
        fitted = WeightedEM(LogisticRegression(max_iter=500), n_rounds=5).fit(x, noisy)
        mean = fitted.predict_proba(x) @ np.arange(5.0)[fitted.classes_]
        assert ((mean - labels) ** 2).mean() < 0.5 * labels.var()


def test_evidence_is_a_better_target_than_values():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        error = import_module("number_targets").errors(4000, 2.0, 0)
    finally:
        sys.path.pop(0)
    assert error["values of bins"] > 120 > 90 > max(error["evidence of bins"], error["unbiased values"])
