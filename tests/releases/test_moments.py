import numpy as np
import pytest

import labeldp as ldp
from labeldp.releases import NoisyMoments


def linear_problem(rows, seed=0):
    """Three classes of points around three corners, each with an intercept: public rows of length about 1."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, rows)
    corners = np.array([[0.0, 1.0], [0.87, -0.5], [-0.87, -0.5]])
    points = corners[labels] + generator.normal(0, 0.2, (rows, 2))
    return np.column_stack([np.ones(rows), points]), labels


def moments(query, labels, classes=3, scale=1000.0, sigma=1.0, shift=0):
    sums = query.T @ (labels[:, None] == np.arange(classes))
    return NoisyMoments(
        space=ldp.LabelSpace(range(classes)),
        guarantee=ldp.Guarantee(1.0),
        mechanism="test",
        rows=len(labels),
        moments=np.rint(sums * scale).astype(np.int64) + shift,
        gram=query.T @ query,
        totals=query.sum(axis=0),
        scale=scale,
        sigma=sigma,
        query=query,
    )


def vault_release(query, labels, epsilon=1.0, rows=None):
    vault = ldp.Vault(labels, ldp.LabelSpace(range(3)), ldp.Budget(epsilon, 1e-5))
    return vault.release(ldp.LinearQuery(query, epsilon, 1e-5), rows=rows)


def test_most_labels_of_an_easy_problem_come_back():
    query, labels = linear_problem(3000)
    release = vault_release(query, labels)
    assert release.kind == "prior"
    assert (release.labels() == labels).mean() > 0.95


def test_without_noise_the_model_is_least_squares():
    query, labels = linear_problem(30_000)
    one_hot = (labels[:, None] == np.arange(3)).astype(float)
    expected = np.linalg.lstsq(query, one_hot, rcond=None)[0]
    assert moments(query, labels).coefficients == pytest.approx(expected, abs=2e-3)


def test_noise_that_disagrees_with_the_public_totals_is_removed():
    query, labels = linear_problem(300)
    plain = moments(query, labels).coefficients
    shifted = moments(query, labels, shift=np.array([[90_000], [-5_000], [12_345]])).coefficients
    assert shifted == pytest.approx(plain, abs=1e-9)


def test_more_noise_shrinks_the_model():
    query, labels = linear_problem(300)
    query = query - query.mean(axis=0)
    sizes = [np.abs(moments(query, labels, sigma=s).coefficients).sum() for s in (1.0, 1e5, 1e7)]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 0.05 * sizes[0]


def test_a_useless_direction_is_harmless():
    query, labels = linear_problem(3000)
    wide = np.column_stack([query, query[:, 1], np.zeros(3000)])
    assert (moments(wide, labels).labels() == moments(query, labels).labels()).mean() > 0.99


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_evidence_is_a_normalised_log_probability(epsilon):
    query, labels = linear_problem(500)
    evidence = vault_release(query, labels, epsilon).log_evidence()
    assert np.isfinite(evidence).all()
    assert np.exp(evidence).sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_rows_not_released_are_zeros_and_do_not_count():
    query, labels = linear_problem(1000)
    rows = np.arange(1000) < 900
    release = vault_release(query, np.where(rows, labels, 0), 5.0, rows)
    assert (release.log_evidence()[~rows] == 0).all()
    assert (release.labels()[~rows] == -1).all()
    assert release.totals[0] == pytest.approx(900, rel=1e-3)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_loaded_release_needs_its_query_back(tmp_path, suffix):
    query, labels = linear_problem(200)
    release = vault_release(query, labels)
    release.save(tmp_path / f"moments{suffix}")
    loaded = ldp.Release.load(tmp_path / f"moments{suffix}")
    with pytest.raises(ldp.InputError, match="with_query"):
        loaded.log_evidence()
    assert np.array_equal(loaded.with_query(query).log_evidence(), release.log_evidence())


@pytest.mark.parametrize("shape", [(199, 3), (200, 2), (600,)])
def test_a_query_of_another_shape_is_refused(shape):
    query, labels = linear_problem(200)
    with pytest.raises(ldp.InputError, match="200 rows and 3 columns"):
        moments(query, labels).with_query(np.zeros(shape))


def test_a_repeated_request_comes_back_with_its_query():
    query, labels = linear_problem(200)
    vault = ldp.Vault(labels, ldp.LabelSpace(range(3)), ldp.Budget(1.0, 1e-5))
    first, second = (vault.release(ldp.LinearQuery(query, 1.0, 1e-5)) for _ in range(2))
    assert np.array_equal(first.log_evidence(), second.log_evidence())
