from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.mechanisms import GroupHistogram
from labeldp.recipes.cluster_votes import (
    assign_cluster_classes,
    choose_n_clusters,
    keep_agreeing,
    plurality_vote,
    select_confident_rows,
)
from labeldp.recipes.task import Task

ONE = Embeddings(np.zeros((1, 1)))


def count(rows, classes, budget, **options):
    task = Task(ONE, ldp.LabelSpace(list(range(classes))), np.ones(rows, bool), budget)
    return choose_n_clusters(task, **options)


@given(st.integers(1, 10**5), st.integers(2, 200), st.floats(1e-3, 1e5), st.booleans())
@settings(max_examples=100)
def test_more_rows_and_more_epsilon_never_mean_fewer_clusters(rows, classes, epsilon, from_responses):
    found = count(rows, classes, epsilon, from_responses=from_responses)
    assert classes <= found <= 30 * classes
    assert found <= count(2 * rows, classes, epsilon, from_responses=from_responses)
    assert found <= count(rows, classes, 1.5 * epsilon, from_responses=from_responses)


def test_noisy_labels_bear_fewer_clusters_than_noisy_counts_do():
    assert count(50_000, 10, 0.5, from_responses=True) < count(50_000, 10, 0.5)


def test_a_share_of_epsilon_bears_fewer_clusters():
    assert count(5_000, 10, 1.0, epsilon=0.2) == count(5_000, 10, 0.2) < count(5_000, 10, 1.0)


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 2), min_size=n, max_size=n),
            st.lists(st.integers(0, 3), min_size=n, max_size=n),
            st.lists(st.booleans(), min_size=n, max_size=n).filter(any),
        )
    )
)
@settings(max_examples=50)
def test_a_vote_is_the_plurality_of_the_released_labels_of_the_group(case):
    labels, groups, row_mask = map(np.array, case)
    vault = ldp.Vault(labels, ldp.LabelSpace([0, 1, 2]), ldp.Budget(1.0))
    release = vault.release(ldp.RandomizedResponse(1.0), row_selection=row_mask)
    released, found = release.labels(), plurality_vote(release, groups.astype(np.int32))
    for row, group in enumerate(groups):
        there = released[(groups == group) & row_mask]
        votes = [int((there == c).sum()) for c in range(3)]
        assert votes[found[row]] == max(votes)
    agreeing = keep_agreeing(release, found).labels()
    assert np.array_equal(agreeing, np.where(row_mask & (released == found), released, -1))


def test_all_rows_of_a_group_get_one_vote():
    vault = ldp.Vault(np.arange(90) % 3, ldp.LabelSpace([0, 1, 2]), ldp.Budget(1.0))
    groups = (np.arange(90) // 9).astype(np.int32)
    found = plurality_vote(vault.release(ldp.RandomizedResponse(1.0)), groups)
    assert all(len(set(found[groups == g])) == 1 for g in range(10))


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e5])
def test_one_row_and_two_classes_have_at_least_two_clusters(epsilon):
    assert count(1, 2, epsilon) == count(1, 2, epsilon, from_responses=True) == 2


def test_each_group_contributes_its_most_confident_rows_of_a_class():
    posterior = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.55, 0.45], [0.51, 0.49]])
    groups = np.array([0, 0, 0, 0, 1, 1])
    assert select_confident_rows(posterior, groups, 3).tolist() == [
        0,
        0,
        -1,
        -1,
        0,
        -1,
    ]  # half of each group, not the three most confident rows
    assert select_confident_rows(posterior, groups, 6).tolist() == [0] * 6
    assert select_confident_rows(posterior, groups, 100).tolist() == [0] * 6


def test_a_class_that_a_group_hardly_holds_gives_no_row_there():
    posterior = np.array([[0.9, 0.1]] * 4 + [[0.1, 0.9]])
    assert select_confident_rows(posterior, np.zeros(5, int), 9).tolist() == [0, 0, 0, 0, -1]
    assert select_confident_rows(posterior, np.zeros(5, int), 9, min_group_share=0.1).tolist() == [0, 0, 0, 0, 1]


def test_labels_are_balanced_where_guesses_are_not():
    posterior = np.concatenate([np.tile([0.8, 0.2], (900, 1)), np.tile([0.3, 0.7], (100, 1))])
    codes = select_confident_rows(posterior, np.repeat(np.arange(10), 100), 90)
    assert np.bincount(codes[codes >= 0]).tolist() == [90, 90]


def test_there_is_always_some_row_to_learn_from():
    posterior = np.tile([[0.6, 0.4], [0.3, 0.7]], (50, 1))
    assert np.bincount(select_confident_rows(posterior, np.repeat([0, 1], 50), 1) + 1).tolist() == [
        96,
        2,
        2,
    ]  # one a group and class
    even = np.eye(4)[np.arange(40) % 4]  # no class has three tenths of the only group
    assert np.bincount(select_confident_rows(even, np.zeros(40, int), 2) + 1).tolist() == [32, 2, 2, 2, 2]


def counted(table, epsilon=1.0):
    """Noisy counts whose noise is what the table says."""
    groups = np.arange(len(table))
    vault = ldp.Vault(np.zeros(len(table), int), ldp.LabelSpace(list(range(len(table[0])))), ldp.Budget(epsilon))
    return replace(vault.release(GroupHistogram(groups, epsilon)), counts=np.array(table))


def test_each_of_as_many_groups_has_a_class_of_its_own_unless_counts_speak_against_it():
    near = [[50, 3, 0], [40, 38, 0], [0, 5, 60]]  # a lead of two in the second row is less than noise of scale two
    assert assign_cluster_classes(counted(near)).tolist() == [0, 1, 2]
    far = [[50, 3, 0], [40, 8, 0], [0, 5, 60]]
    assert assign_cluster_classes(counted(far)).tolist() == [0, 0, 2]
    assert assign_cluster_classes(counted([[5, 9], [5, 4], [1, 7]])).tolist() == [1, 0, 1]
