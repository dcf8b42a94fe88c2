import math

import numpy as np
import pytest

from labeldp.learn.ridge import LinearModel
from labeldp.mechanisms import LinearQuery
from labeldp.recipes.pipelines.moments import needs_smoothing
from labeldp.recipes.training import train
from labeldp.representation.smooth import smooth_rows


@pytest.mark.parametrize(
    ("epsilon", "delta", "margin"),
    [(0.5, 0.0, 0.25), (1.0, 0.0, 0.4), (0.5, 1e-5, 0.6), (1.0, 1e-5, 0.5)],  # measured: 0.42, 0.51, 0.68, 0.60
)
def test_sums_beat_randomized_response_at_a_low_epsilon(digits, epsilon, delta, margin):
    assert (
        digits.mean_accuracy("moments", epsilon, delta)
        > digits.mean_accuracy("randres", epsilon, targets="labels") + margin
    )


def test_gaussian_noise_is_much_less_than_pure_noise_for_dense_rows(digits):
    assert digits.mean_accuracy("moments", 0.5, 1e-5) > digits.mean_accuracy("moments", 0.5) + 0.15  # measured: 0.26


def test_one_query_is_all_that_is_asked(digits):
    vault = digits.vault(0.5, 1e-5)
    trained = train(vault, digits.task(0.5, 1e-5), "moments", score=False)
    assert [r.mechanism for r in trained.releases] == ["LinearQuery"]
    assert isinstance(trained.model, LinearModel)
    assert trained.model.guarantee.epsilon == trained.guarantee.epsilon
    assert (trained.guarantee.epsilon, trained.guarantee.delta) == (0.5, 1e-5)


def test_the_training_of_networks_has_no_part_in_it(digits):
    one, two = (
        train(digits.vault(1.0), digits.task(1.0, epochs=epochs), "moments", score=False).model for epochs in (1, 9)
    )
    assert np.array_equal(one.coefficients, two.coefficients)


def test_sums_of_smoothed_rows_are_more_accurate_under_noise(digits):
    task = digits.task(0.3, 1e-5)
    assert math.isclose(task.signal_strength(0.3), 0.3 * 140)

    def right(query):
        found = []
        for seed in range(5):
            sums = digits.vault(0.3, 1e-5, seed).release(LinearQuery(query, 0.3, 1e-5))
            found.append(((query @ sums.coefficients).argmax(axis=1) == digits.labels).mean())
        return np.mean(found)

    assert (
        right(smooth_rows(task.encoded_features, task.n_columns)) > right(task.normalized) + 0.1
    )  # measured: 0.92 against 0.79
    assert np.allclose(np.linalg.norm(smooth_rows(task.encoded_features, task.n_columns), axis=1), 1, atol=1e-5)
    assert needs_smoothing(task)
    assert not needs_smoothing(digits.task(8.0, 1e-5))


def test_what_smooth_sums_say_is_learnt_for_new_rows(digits):
    smooth, plain = (digits.mean_accuracy(name, 0.3, 1e-5) for name in ("smooth-moments", "moments"))
    assert smooth > plain + 0.1  # measured: 0.92 against 0.76
