"""The exact law of each mechanism, found by driving its stream, compared with its epsilon and with the optimum."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scripted import exact_law

import labeldp as ldp
from labeldp.mechanisms import RRMaxInformation, RRTopK, RRWithPrior
from labeldp.privacy.mechanisms import randomized_response


def channel(mechanism, classes):
    """P(output | label) of one row, as the implementation samples it: (outputs, labels)."""
    out = np.zeros((classes, classes))
    space = ldp.LabelSpace(list(range(classes)))
    for label in range(classes):
        vault = ldp.Vault([label], space, ldp.Budget(mechanism.epsilon))

        def draw(bits, vault=vault):
            release_fields = dict(space=space, guarantee=None, mechanism="", n_rows=1)
            return int(mechanism.draw(vault._Vault__codes, release_fields, bits).codes[0])

        for output, mass in exact_law(draw).items():
            out[output, label] = float(mass)
    return out


def worst_loss(law):
    """The largest log-ratio between two labels for one output; infinite where only one of them allows it."""
    possible = law[law.max(axis=1) > 0]
    return float(np.log(possible.max(axis=1) / possible.min(axis=1)).max()) if (possible > 0).all() else math.inf


PRIORS = {
    "uniform": np.full(5, 0.2),
    "peaked": np.array([0.05, 0.7, 0.05, 0.15, 0.05]),
    "one-hot": np.array([0.0, 0.0, 1.0, 0.0, 0.0]),
    "ties": np.array([0.4, 0.1, 0.4, 0.1, 0.0]),
}


def mechanisms(epsilon):
    yield "rr", ldp.RandomizedResponse(epsilon), 5
    yield "rr of two", ldp.RandomizedResponse(epsilon), 2
    for name, prior in PRIORS.items():
        yield f"prior {name}", RRWithPrior(epsilon, prior[None]), 5
        yield f"maximum information {name}", RRMaxInformation(epsilon, prior[None]), 5
        for k in (1, 2, 4, 5):
            yield f"top-{k} {name}", RRTopK(epsilon, prior[None], k=k), 5


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_any_two_labels_are_within_epsilon(epsilon):
    for name, mechanism, classes in mechanisms(epsilon):
        law = channel(mechanism, classes)
        assert np.allclose(law.sum(axis=0), 1, atol=1e-15), name
        assert worst_loss(law) <= epsilon * (1 + 1e-12), name


def test_the_stated_epsilon_is_reached():
    for classes in (2, 3, 10):
        assert worst_loss(channel(ldp.RandomizedResponse(1.5), classes)) == pytest.approx(1.5, rel=1e-12)


def test_a_constant_off_by_one_percent_is_noticed(monkeypatch):
    as_fraction = randomized_response.as_fraction
    monkeypatch.setattr(randomized_response, "as_fraction", lambda epsilon: as_fraction(epsilon) * 101 / 100)
    assert worst_loss(channel(ldp.RandomizedResponse(1.0), 5)) > 1.005
    assert worst_loss(channel(RRTopK(1.0, PRIORS["peaked"][None], k=3), 5)) > 1.005


def test_evidence_is_the_law_that_was_sampled():
    for name, mechanism, classes in mechanisms(1.0):
        law = channel(mechanism, classes)
        release = ldp.Vault([0], ldp.LabelSpace(list(range(classes))), ldp.Budget(1.0)).release(mechanism)
        output = int(release.labels()[0])
        assert np.allclose(np.exp(release.log_evidence())[0], law[output], rtol=1e-6), name
        assert np.allclose(release.noise_matrix(), law, atol=1e-12), name


# The best possible mechanism, by linear programming.


def best_possible_accuracy(prior, epsilon):
    """Maximise sum_y p_y q(y|y) over all epsilon-private q. Constraints are scaled by exp(-epsilon), because the
    other way the solver is off by 1e-3 for a large epsilon."""
    k = len(prior)
    rows = []
    for output in range(k):
        for y in range(k):
            for other in range(k):
                if y != other:
                    row = np.zeros((k, k))
                    row[output, y], row[output, other] = math.exp(-epsilon), -1.0
                    rows.append(row.ravel())
    sums = np.array([np.outer(np.ones(k), np.eye(k)[y]).ravel() for y in range(k)])
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    objective = -np.diag(prior).ravel()
    solution = linprog(objective, np.array(rows), np.zeros(len(rows)), sums, np.ones(k), (0, 1), "highs", options=tight)
    assert solution.status == 0
    return -solution.fun


def expected_accuracy(prior, epsilon):
    vault = ldp.Vault([0], ldp.LabelSpace(list(range(len(prior)))), ldp.Budget(epsilon))
    return prior @ np.diag(vault.release(RRWithPrior(epsilon, prior[None])).noise_matrix())


@st.composite
def priors(draw):
    weights = np.array(draw(st.lists(st.integers(0, 6), min_size=2, max_size=12).filter(any)), float)
    if draw(st.booleans()):  # without ties
        weights *= 1 + np.linspace(0, 0.5, weights.size)
    return weights / weights.sum()


@given(priors(), st.floats(0.01, 10))
@example(np.eye(12)[3], 0.01)
@example(np.full(12, 1 / 12), 10.0)
@example(np.array([0.5, 0.5, 0.0]), 1.0)
@settings(max_examples=60)
def test_no_mechanism_has_a_higher_accuracy(prior, epsilon):
    assert expected_accuracy(prior, epsilon) == pytest.approx(best_possible_accuracy(prior, epsilon), abs=1e-9)


def test_rows_choose_their_own_candidates():
    prior = np.array([[0.98, 0.01, 0.01], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.49, 0.01]])
    vault = ldp.Vault([0, 1, 2], ldp.LabelSpace([0, 1, 2]), ldp.Budget(1.0))
    release = vault.release(RRWithPrior(1.0, prior))
    assert np.unpackbits(release.candidates, axis=1, count=3).tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 0]]


def test_missing_and_unchosen_rows_stay_out():
    space = ldp.LabelSpace([0, 1, 2], missing="public")
    labels, prior = [0, None, 2, 1], np.full((4, 3), 1 / 3)
    for mechanism in (
        ldp.RandomizedResponse(1.0),
        RRWithPrior(1.0, prior),
        RRTopK(1.0, prior, k=2),
    ):
        release = ldp.Vault(labels, space, ldp.Budget(1.0)).release(mechanism, row_selection=[1, 2, 3])
        assert (release.labels() == -1).tolist() == [True, True, False, False]
        assert not release.log_evidence([0, 1]).any()


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, "1", True, None])
def test_bad_epsilon(epsilon):
    with pytest.raises(ldp.InputError, match="epsilon must be"):
        ldp.RandomizedResponse(epsilon)


@pytest.mark.parametrize(
    "prior",
    [
        np.full((3, 2), 0.4),
        np.array([[0.5, 0.5], [1.5, -0.5], [1, 0]]),
        np.array([[0.5, 0.5], [np.nan, 1], [1, 0]]),
        np.full((2, 2), 0.5),
        np.full(3, 1.0),
    ],
)
def test_bad_prior_costs_nothing(prior):
    vault = ldp.Vault([0, 1, 0], ldp.LabelSpace([0, 1]), ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match="prior"):
        vault.release(RRWithPrior(1.0, prior))
    assert vault.guarantee().epsilon == 0


@pytest.mark.parametrize("k", [0, 3, 1.5, True])
def test_bad_k(k):
    vault = ldp.Vault([0, 1], ldp.LabelSpace([0, 1]), ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match="k must be"):
        vault.release(RRTopK(1.0, np.full((2, 2), 0.5), k=k))


def mutual_information(law, prior):
    """The mutual information of label and output, by definition."""
    joint = law * prior
    independent = joint.sum(axis=1, keepdims=True) * prior
    return float((joint[joint > 0] * np.log(joint[joint > 0] / independent[joint > 0])).sum())


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=4), st.sampled_from([0.3, 1.0, 3.0]))
@settings(max_examples=30)
def test_no_number_of_candidates_has_more_information(weights, epsilon):
    prior = (np.array(weights) + 1e-3) / (np.array(weights) + 1e-3).sum()
    space = ldp.LabelSpace(list(range(len(prior))))

    def law(mechanism):
        return ldp.Vault([0], space, ldp.Budget(epsilon)).release(mechanism).noise_matrix()

    sorted_prior = np.sort(prior)[::-1][None]
    by_count = [mutual_information(law(RRTopK(epsilon, prior[None], k=k)), prior) for k in range(1, len(prior) + 1)]
    for k, expected in enumerate(by_count, 1):
        assert randomized_response.response_information(sorted_prior, k, epsilon)[0] == pytest.approx(
            expected, abs=1e-9
        )
    assert mutual_information(law(RRMaxInformation(epsilon, prior[None])), prior) == pytest.approx(
        max(by_count), abs=1e-9
    )


def test_maximum_information_uses_all_candidates_of_a_confident_prior():
    sorted_prior = np.array([[0.9, 0.06, 0.04], [1.0, 0.0, 0.0]])
    assert RRWithPrior(1.0, sorted_prior).count_candidates(sorted_prior).tolist() == [1, 1]
    assert RRMaxInformation(1.0, sorted_prior).count_candidates(sorted_prior).tolist() == [3, 1]


def test_responses_have_the_dtype_of_the_label_codes():
    release = ldp.Vault([0, 1, 2], ldp.LabelSpace([0, 1, 2]), ldp.Budget(1.0)).release(ldp.RandomizedResponse(1.0))
    assert release.codes.dtype == np.int8


def test_a_prior_of_low_precision_is_added_up_in_double_precision():
    sorted_prior = np.full((1, 3000), 1 / 3000, np.float16)
    mechanism = RRWithPrior(10.0, np.full((1, 2), 0.5))
    assert (
        mechanism.count_candidates(sorted_prior) == mechanism.count_candidates(sorted_prior.astype(np.float64)) == 3000
    )
