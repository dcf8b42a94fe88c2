import io
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data.feature_reader import FeatureReader
from labeldp.data.row_normalizer import CONSTANT_WEIGHT, RowNormalizer
from labeldp.mechanisms import LinearQuery
from labeldp.releases import NoisyMoments, storage
from labeldp.releases.moments import fit_log_odds, to_probabilities


def linear_problem(n_rows, seed=0):
    """Three classes of points around three corners, each with an intercept: public rows of length about 1."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, n_rows)
    corners = np.array([[0.0, 1.0], [0.87, -0.5], [-0.87, -0.5]])
    points = corners[labels] + generator.normal(0, 0.2, (n_rows, 2))
    return np.column_stack([np.ones(n_rows), points]), labels


def moments(query, labels, classes=3, scale=1000.0, sigma=1.0, shift=0):
    sums = query.T @ (labels[:, None] == np.arange(classes))
    return NoisyMoments(
        space=ldp.LabelSpace(range(classes)),
        guarantee=ldp.Guarantee(1.0),
        mechanism="test",
        n_rows=len(labels),
        moments=np.rint(sums * scale).astype(np.int64) + shift,
        stored_gram=query.T @ query,
        totals=query.sum(axis=0),
        grid_scale=scale,
        sigma=sigma,
        query=query,
    )


def vault_release(query, labels, epsilon=1.0, rows=None):
    vault = ldp.Vault(labels, ldp.LabelSpace(range(3)), ldp.Budget(epsilon, 1e-5))
    return vault.release(LinearQuery(query, epsilon, 1e-5), row_selection=rows)


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
def test_evidence_is_a_normalized_log_probability(epsilon):
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
    first, second = (vault.release(LinearQuery(query, 1.0, 1e-5)) for _ in range(2))
    assert np.array_equal(first.log_evidence(), second.log_evidence())


def stored_names(release):
    with np.load(io.BytesIO(storage.to_bytes(release))) as file:
        return set(file.files)


def test_the_gram_matrix_is_stored_for_dense_queries_only():
    query, labels = linear_problem(200)
    dense, sparse = vault_release(query, labels), vault_release(csr_array(query), labels)
    assert stored_names(dense) == {"description", "moments", "gram", "totals"}
    assert stored_names(sparse) == {"description", "moments", "totals"}
    description = storage.describe(dense)
    assert {"gram", "stored_gram"}.isdisjoint(description)
    assert np.array_equal(storage.rebuild(description, dense.arrays()).gram, dense.gram)


@pytest.mark.parametrize("as_matrix", [np.asarray, csr_array, coo_array])
@pytest.mark.parametrize("rows", [None, np.arange(200) % 3 > 0])
def test_a_loaded_sparse_release_needs_its_query_for_the_gram(as_matrix, rows):
    query, labels = linear_problem(200)
    release = vault_release(csr_array(query), labels, rows=rows)
    for loaded in (storage.from_bytes(storage.to_bytes(release)), pickle.loads(pickle.dumps(release))):
        assert (loaded.n_columns, loaded.query) == (3, None)
        with pytest.raises(ldp.InputError, match="with_query"):
            _ = loaded.gram
        whole = loaded.with_query(as_matrix(query))
        assert np.allclose(whole.gram, vault_release(query, labels, rows=rows).gram)
        assert np.allclose(whole.log_evidence(), release.log_evidence(), atol=1e-5)


def test_a_sparse_release_refuses_a_gram_of_other_rows():
    query, labels = linear_problem(200)
    release = vault_release(csr_array(query), labels)
    for other in (release.with_query(csr_array(query[::-1] * 2)), release.keep(np.arange(200) > 5)):
        with pytest.raises(ldp.InputError, match="every row that was summed"):
            _ = other.coefficients


def test_a_sparse_release_of_many_columns_has_sums_and_no_gram():
    wide = coo_array((np.ones(200), (np.arange(200), np.arange(200) * 40)), shape=(200, 8000))
    release = vault_release(wide, linear_problem(200)[1])
    assert release.moments.shape == (8000, 3)
    with pytest.raises(ldp.InputError, match="more than 4,096 columns"):
        release.log_evidence()
    with pytest.raises(ldp.InputError, match="200 rows and 8000 columns"):
        release.with_query(wide.tocsr()[:, :5])


def test_sparse_rows_of_two_classes_give_the_same_logistic_model():
    query, labels = rare_problem(2000)
    vault = ldp.Vault(labels, ldp.LabelSpace([0, 1]), ldp.Budget(9.0))
    sparse = vault.release(LinearQuery(csr_array(query), 8.0))
    dense = replace(sparse, query=query, stored_gram=sparse.gram)
    assert np.allclose(sparse.scoring_weights, dense.scoring_weights)
    assert sparse.mean_score == pytest.approx(dense.mean_score)


def test_without_delta_the_shrinkage_of_two_classes_fits_their_noise():
    """The projected sums of uninformative labels, over many columns, have noise of deviation sigma."""
    query = np.random.default_rng(0).normal(size=(400, 500))
    vault = ldp.Vault(np.arange(400) % 2, ldp.LabelSpace([0, 1]), ldp.Budget(1.0))
    release = vault.release(LinearQuery(query, 1.0))
    exact = np.rint(query * release.grid_scale).T @ (np.arange(400) % 2)
    noise = release._projected_moments[:, 1] * release.grid_scale - exact
    assert noise.std() == pytest.approx(release.sigma / 2**0.5, rel=0.3)  # sigma^2 (1 - 1/2)


def rare_problem(n_rows, seed=0):
    """One row in sixteen is of the second class, which is nearly linearly separable."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(n_rows, 2))
    labels = (points[:, 0] + generator.normal(0, 0.3, n_rows) > 1.6).astype(int)
    return np.column_stack([np.ones(n_rows), points / 3]), labels


def test_sums_of_two_classes_give_a_logistic_model_that_predicts_a_rare_class():
    query, labels = rare_problem(20_000)
    release = moments(query, labels, classes=2)
    probabilities, linear = to_probabilities(query @ release.scoring_weights), query @ release.coefficients
    assert (linear[:, 1] > linear[:, 0])[labels == 1].mean() < 0.01
    assert (probabilities[:, 1] > 0.5)[labels == 1].mean() > 0.5
    assert probabilities[:, 1].mean() == pytest.approx(labels.mean(), rel=0.05)
    slope = query @ (release.coefficients[:, 1] - release.coefficients[:, 0])
    known = LogisticRegression(C=1e6).fit(slope[:, None], labels).predict_proba(slope[:, None])
    assert probabilities == pytest.approx(known, abs=0.01)  # A'Y is a sufficient statistic of this model


@pytest.mark.parametrize("active", [None, np.arange(20_000) % 2 == 0])
def test_noise_hardly_changes_the_predictions_of_a_rare_class(active):
    query, labels = rare_problem(20_000)
    vault = ldp.Vault(labels, ldp.LabelSpace([0, 1]), ldp.Budget(1.0, 1e-5))
    release = vault.release(LinearQuery(query, 1.0, 1e-5), row_selection=active)
    predicted = to_probabilities(query @ release.scoring_weights).argmax(axis=1)
    assert (predicted == labels).mean() > max(0.945, 1 - labels.mean())


def test_probabilities_from_noise_alone_are_frequencies():
    query, labels = rare_problem(400)
    found = [to_probabilities(query @ moments(query, labels, 2, sigma=s).scoring_weights)[:, 1] for s in (1e5, 1e6)]
    assert all(np.isfinite(each).all() for each in found)
    assert found[1].std() < 0.05
    against = fit_log_odds(np.column_stack([np.ones(400), query[:, 1]]), np.array([100.0, -50.0]))
    assert against == pytest.approx([np.log(100 / 300), 0.0])


def test_where_noise_is_large_log_odds_are_about_as_good_as_the_linear_model():
    """With few rows, the estimated class size is as noisy as the other sums."""
    rows, labels = load_breast_cancer(return_X_y=True)
    features = FeatureReader.fit(rows, "table")[1]
    query = RowNormalizer.fit(features, clip=True, constant=CONSTANT_WEIGHT)(features)
    found = []
    for _ in range(12):
        vault = ldp.Vault(labels, ldp.LabelSpace([0, 1]), ldp.Budget(0.4))
        release = vault.release(LinearQuery(query, 0.4))
        both = (query @ release.coefficients, to_probabilities(query @ release.scoring_weights))
        found.append([(predicted.argmax(axis=1) == labels).mean() for predicted in both])
    linear, logistic = np.mean(found, axis=0)
    assert logistic > linear - 0.03
