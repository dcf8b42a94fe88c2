from dataclasses import dataclass

import numpy as np
import pytest

import labeldp as ldp


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores(ldp.Release):
    """Evidence that is given: row i has the scores of `table[i % len(table)]`."""

    kind = "likelihood"
    table: np.ndarray

    def arrays(self):
        return {"table": self.table}

    def _log_scores(self, row_ids):
        return self.table[row_ids % len(self.table)]


def scores(table, n_rows=None, row_mask=None):
    table = np.array(table, float)
    return Scores(
        space=ldp.LabelSpace(range(table.shape[1])),
        guarantee=ldp.Guarantee(1.0),
        mechanism="test",
        n_rows=len(table) if n_rows is None else n_rows,
        row_mask=row_mask,
        table=table,
    )


TABLE = np.log(np.random.default_rng(0).dirichlet(np.ones(3), 6))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5]),
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, -2), [5, 3, 1]),
        (np.array([True, False, False, True, False, False]), [0, 3]),
        ([5, 0, 0], [5, 0, 0]),
        (np.array([2], np.uint8), [2]),
        (range(2), [0, 1]),
        ([], []),
        (np.zeros(6, bool), []),
    ],
    ids=["all", "slice", "backwards", "mask", "indices", "uint8", "range", "none", "empty mask"],
)
def test_rows_by_slice_mask_or_index(rows, expected):
    evidence = scores(TABLE).log_evidence(rows)
    assert evidence.dtype == np.float32
    assert np.array_equal(evidence, TABLE[expected].astype(np.float32))


@pytest.mark.parametrize(
    "rows",
    [[6], [-1], [0, 6], 3, [[0, 1]], [0.5], ["0"], [True, False], np.ones(7, bool)],
    ids=["beyond", "negative", "one beyond", "scalar", "matrix", "fraction", "text", "short mask", "long mask"],
)
def test_rows_that_are_not_rows_are_refused(rows):
    with pytest.raises(ldp.InputError):
        scores(TABLE).log_evidence(rows)


def test_rows_not_released_have_zeros_and_no_label():
    release = scores(TABLE, row_mask=np.arange(6) != 2)
    assert (release.log_evidence() == 0).all(axis=1).tolist() == [False, False, True, False, False, False]
    assert (release.log_evidence([2, 2]) == 0).all()
    assert release.labels().tolist() == np.where(np.arange(6) == 2, -1, TABLE.argmax(axis=1)).tolist()


def test_ties_are_broken_evenly_and_only_between_the_best():
    labels = scores([[2.0, 1.0, 2.0, 2.0]], n_rows=9000).labels()
    counts = np.bincount(labels, minlength=4)
    assert counts[1] == 0
    assert counts[[0, 2, 3]] == pytest.approx(3000, abs=300)


def test_ties_are_broken_the_same_for_the_same_seed_only():
    release = scores([[0.0, 0.0]], n_rows=500)
    assert np.array_equal(release.labels(seed=3), release.labels(seed=3))
    assert not np.array_equal(release.labels(seed=3), release.labels(seed=4))


def test_labels_of_many_rows_are_computed_in_blocks():
    release = scores(TABLE, n_rows=140_001, row_mask=np.arange(140_001) % 5 != 0)
    expected = np.where(release.row_mask, TABLE.argmax(axis=1)[np.arange(140_001) % 6], -1)
    assert np.array_equal(release.labels(), expected)
    ties = scores([[0.0, 0.0]], n_rows=140_000).labels()
    assert not np.array_equal(ties[:70_000], ties[70_000:])


def test_keep_drops_rows_and_nothing_else():
    release = scores(TABLE)
    filtered = release.keep(np.arange(6) < 4).keep(np.arange(6) > 1)
    assert np.flatnonzero(filtered.log_evidence().any(axis=1)).tolist() == [2, 3]
    assert np.array_equal(filtered.log_evidence([2, 3]), release.log_evidence([2, 3]))
    assert (filtered.guarantee, filtered.entry, filtered.n_rows) == (release.guarantee, release.entry, release.n_rows)
    assert release.log_evidence().all()


@pytest.mark.parametrize("mask", [[True] * 5, [True] * 7, [0, 1, 2], np.ones((6, 1), bool), np.ones(6)])
def test_keep_takes_one_boolean_a_row(mask):
    with pytest.raises(ldp.InputError, match="mask of 6 rows"):
        scores(TABLE).keep(mask)


def test_keep_copies_its_mask():
    mask = np.ones(6, bool)
    filtered = scores(TABLE).keep(mask)
    mask[:] = False
    assert (filtered.labels() != -1).all()


def test_a_release_that_is_no_label_has_no_noise_matrix():
    with pytest.raises(ldp.InputError, match="noise matrix"):
        scores(TABLE).noise_matrix()


@pytest.mark.parametrize("field", ["epsilon", "n_rows", "guarantee", "space"])
def test_a_release_is_frozen(field):
    release = ldp.Vault([0, 1], ldp.LabelSpace([0, 1]), ldp.Budget(1.0)).release(ldp.RandomizedResponse(1.0))
    with pytest.raises(AttributeError):
        setattr(release, field, 5)


def test_a_release_names_its_mechanism_and_its_ledger_entry():
    vault = ldp.Vault([0, 1], ldp.LabelSpace([0, 1]), ldp.Budget(1.0))
    release = vault.release(ldp.RandomizedResponse(0.75))
    assert release.mechanism == "RandomizedResponse"
    assert release.parameters == {"epsilon": 0.75}
    assert release.entry in {entry.id for entry in vault.ledger.entries()}
    assert release.guarantee.epsilon == 0.75
