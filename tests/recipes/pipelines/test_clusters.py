from dataclasses import replace

import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.data import Images
from labeldp.learn import Model, Supervised
from labeldp.learn.backbones import build
from labeldp.mechanisms import GroupHistogram
from labeldp.recipes.budget_split import split_epsilon
from labeldp.recipes.cluster_votes import choose_n_clusters
from labeldp.recipes.training import train
from labeldp.representation.scan import SCAN


@pytest.mark.parametrize(
    ("name", "epsilon", "margin"),
    [
        ("noise-cluster", 0.5, 0.6),  # measured: 0.74
        ("noise-cluster", 1.0, 0.5),  # 0.64
        ("cluster-prior", 0.5, 0.35),  # 0.55
        ("cluster-prior", 1.0, 0.45),  # 0.58
    ],
)
def test_clusters_beat_randomized_response_at_a_low_epsilon(digits, name, epsilon, margin):
    assert digits.mean_accuracy(name, epsilon) > digits.mean_accuracy("randres", epsilon, targets="labels") + margin


def test_votes_survive_far_below_what_single_labels_do(digits):
    assert digits.mean_accuracy("noise-cluster", 0.1) > 0.5  # randomized response: 0.12, where chance is 0.1


def test_balanced_clusters_beat_kmeans_clusters_at_a_small_epsilon(digits):
    found = {}
    for method in ("kmeans", "balanced"):
        options, found[method] = {"method": method, "clusters": 10}, []
        for seed in range(2):
            task = digits.task(0.05, seed=seed, epochs=12)
            trained = train(digits.vault(0.05, seed=seed), task, "noise-cluster", options, score=False)
            found[method].append(digits.accuracy(trained.model))
    assert np.mean(found["balanced"]) > np.mean(found["kmeans"]) + 0.1, found


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_delta_is_left_alone_because_it_would_buy_more_noise(digits, epsilon):
    trained = train(digits.vault(epsilon, 1e-6), digits.task(epsilon, 1e-6), "noise-cluster", score=False)
    (counts,) = trained.releases
    assert (trained.guarantee.epsilon, trained.guarantee.delta) == (epsilon, 0.0)
    assert counts.noise == "geometric"
    assert np.sqrt(2) * 2 / epsilon < GroupHistogram(np.zeros(1, int), epsilon, 1e-6).sigma


@pytest.mark.parametrize("clusters", [3, 10, 40])
def test_any_number_of_clusters_will_do(digits, clusters):
    trained = train(digits.vault(5.0), digits.task(5.0), "noise-cluster", {"clusters": clusters}, score=False)
    assert trained.releases[0].counts.shape == (clusters, 10)


def test_the_number_of_clusters_comes_from_public_facts(digits):
    """Other labels, even constant ones, make no difference."""
    found = []
    for labels in (digits.labels, np.zeros(1400, int)):
        vault = ldp.Vault(labels, digits.task(1.0).space, ldp.Budget(1.0))
        found.append(train(vault, digits.task(1.0), "noise-cluster", score=False).releases[0].groups)
    assert np.array_equal(*found)
    assert found[0].max() + 1 == choose_n_clusters(digits.task(1.0))


@pytest.mark.parametrize("epsilon_fraction", [0.1, 0.2, 0.7])
def test_the_share_is_that_of_the_counts(digits, epsilon_fraction):
    trained = train(
        digits.vault(0.3), digits.task(0.3), "cluster-prior", {"epsilon_fraction": epsilon_fraction}, score=False
    )
    counts, noisy = trained.releases
    assert (counts.parameters["epsilon"], noisy.epsilon) == split_epsilon(0.3, epsilon_fraction)
    assert trained.guarantee.epsilon == 0.3
    assert noisy.guarantee.epsilon == 0.3  # the prior is part of what it rests on


@pytest.mark.parametrize("epsilon_fraction", [0.0, 1.0, -0.1, 1.2, float("nan")])
def test_a_share_that_leaves_nothing_is_refused(digits, epsilon_fraction):
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match=r"above 0 and below 1|must not be below zero"):
        train(vault, digits.task(1.0), "cluster-prior", {"epsilon_fraction": epsilon_fraction})
    assert not vault.ledger.entries()


def test_randomized_response_is_asked_among_the_classes_of_the_cluster(digits):
    trained = train(digits.vault(2.0), digits.task(2.0), "cluster-prior", score=False)
    counts, noisy = trained.releases
    inside = noisy._candidate_mask(np.arange(1400))
    assert inside.sum(axis=1).mean() < 5
    assert inside[np.arange(1400), counts.labels()].all()
    right = (noisy.labels() == digits.labels).mean()
    assert right > 0.75 > 0.45  # randomized response with all of epsilon: 0.45


def test_a_classifier_learns_from_counts_and_labels_together(digits):
    """A row with one candidate has a flat likelihood: what is known of it is in the counts. Measured: 0.93."""
    from sklearn.linear_model import LogisticRegression

    accuracies = []
    for seed in range(3):
        task = digits.task(2.0, seed=seed, model=LogisticRegression(C=0.1, max_iter=300))
        accuracies.append(
            digits.accuracy(train(digits.vault(2.0, seed=seed), task, "cluster-prior", score=False).model)
        )
    assert np.mean(accuracies) > 0.9


def test_scan_clusters_from_an_encoder(digits):
    pixels = (digits.features.batch(torch.arange(300)) * 255).byte().reshape(-1, 1, 8, 8)
    images = Images(pixels, flip=False)
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    task = replace(digits.task(5.0, count=300), features=images, encoder=encoder)
    trained = train(digits.vault(5.0, count=300), task, "noise-cluster", {"method": "scan", "clusters": 10})
    assert trained.releases[0].counts.shape[0] <= 10
    with pytest.raises(ldp.InputError, match="starts from an encoder"):
        train(digits.vault(5.0), digits.task(5.0), "noise-cluster", {"method": "scan"})
    with pytest.raises(ldp.InputError, match="choose kmeans, balanced or scan"):
        train(digits.vault(5.0), digits.task(5.0), "randres-denoise", {"method": "spectral"})


def test_scan_is_run_once_for_all_tasks_of_a_folder(digits, tmp_path, monkeypatch):
    images = Images((digits.features.batch(torch.arange(200)) * 255).byte().reshape(-1, 1, 8, 8), flip=False)
    encoders = [Model(build("cnn", (1, 8, 8), 1, width=4), None) for _ in range(2)]
    task = replace(digits.task(5.0, count=200), features=images, encoder=encoders[0], folder=tmp_path)
    runs, fit = [], SCAN.fit
    monkeypatch.setattr(SCAN, "fit", lambda self, *others: runs.append(self) or fit(self, *others))
    first = task.find_clusters(10, "scan")
    assert np.array_equal(replace(task, epsilon=1.0).find_clusters(10, "scan"), first)
    assert len(runs) == 1
    replace(task, encoder=encoders[1]).find_clusters(10, "scan")
    replace(task, seed=1).find_clusters(10, "scan")
    assert len(runs) == 3


def test_balanced_clusters_are_computed_once_for_all_tasks_of_a_folder(digits, tmp_path, monkeypatch):
    task, runs = digits.task(5.0, count=100, folder=tmp_path), []
    memberships = np.random.default_rng(0).random((100, 10))
    monkeypatch.setattr(
        "labeldp.recipes.task.balanced_kmeans", lambda rows, n_clusters, seed: runs.append(seed) or memberships
    )
    first = task.find_clusters(10, "balanced")
    assert np.array_equal(first, memberships.argmax(axis=1))
    assert np.array_equal(replace(task, epsilon=1.0).find_clusters(10, "balanced"), first)
    assert runs == [0]
    replace(task, seed=1).find_clusters(10, "balanced")
    replace(task, features=digits.features.select(np.arange(1, 101))).find_clusters(10, "balanced")
    assert runs == [0, 1, 0]


def test_a_row_between_two_clusters_is_half_of_each_class_and_held_out_rows_are_not_learned(digits, monkeypatch):
    rows, fits = np.arange(100) < 90, []
    memberships = np.full((100, 10), 0.05)
    memberships[np.arange(100), digits.labels[:100]] = memberships[np.arange(100), (digits.labels[:100] + 1) % 10] = 0.3
    memberships[np.arange(100), digits.labels[:100]] += 1e-6
    monkeypatch.setattr("labeldp.recipes.task.balanced_kmeans", lambda *words: memberships)
    fit = Supervised.fit
    monkeypatch.setattr(Supervised, "fit", lambda self, *words: fits.append((self, words[1])) or fit(self, *words))
    task = replace(digits.task(50.0, count=100), row_mask=rows)
    train(
        digits.vault(50.0, count=100), task, "noise-cluster", {"method": "balanced"}, score=False, with_rehearsal=False
    )
    ((learner, release),) = fits
    assert learner.targets == "posteriors"
    assert np.array_equal(release.row_mask, rows)
    posterior = np.exp(release.log_evidence()[rows])
    own = np.arange(90), digits.labels[:90]
    assert np.allclose(posterior[own], 0.3, atol=1e-4)
    assert np.allclose(posterior[own[0], (own[1] + 1) % 10], 0.3, atol=1e-4)
