"""Pairs of neighboring worlds for the audit of a mechanism, and draws of its releases in each world.

Worlds differ in one label, or for votes in one vote. Many releases are drawn at once: a mechanism that acts row by row
gets many rows with that label, a histogram gets a group for each draw, and a linear query gets columns for each draw.
All noise comes from the mechanism's own `draw` with the bits of the operating system, as in a vault.

Views. For additive noise, a release has two views, which compare it with the two means. The first is its inner product
with the difference of the means, of which the likelihood ratio of Gaussian noise is a function. The second is the
difference of the two distances, summed over coordinates, of which that of Laplace noise is a function. The bound is
valid for every view.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labeldp.audit.event_selection import Outcomes
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee
from labeldp.core.label_space import Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.mechanisms.linear import GroupHistogram, LinearQuery
from labeldp.privacy.mechanisms.numeric_responses import DiscreteLaplace, RROnBins, UnbiasedBins
from labeldp.privacy.mechanisms.numeric_sums import LossSum, NoisyMinLoss, NumberSums
from labeldp.privacy.mechanisms.one_hot import OneHotGaussian, OneHotLaplace
from labeldp.privacy.mechanisms.randomized_response import RandomizedResponse, RRMaxInformation, RRTopK, RRWithPrior
from labeldp.privacy.mechanisms.residual_selection import LargestResiduals
from labeldp.privacy.mechanisms.selection import BestCandidate, CorrectCount, HighestScore
from labeldp.privacy.mechanisms.stable import ImmutableArgmax, StableVote
from labeldp.privacy.mechanisms.vote_aggregators import ConfidentGNMax, LNMax, VoteAggregator
from labeldp.privacy.noise.secure_stream import SYSTEM
from labeldp.releases.base import Release

# Number of values of the range on which discrete Laplace noise is audited.
_N_VALUES = 5
# The most columns of a linear query that holds several draws.
_MAX_COLUMNS = 256
# The most queries of a run of votes.
_MAX_QUERIES = 64
# The most votes that are drawn at once.
_MAX_VOTES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class NeighborPair:
    """Two neighboring worlds by name; `draw(world, n_draws)` gives independent releases in world 0 or 1.

    Where outcomes are `ordered`, events are the outcomes on one side of a threshold; otherwise they are sets of values.
    """

    name: str
    draw: Callable[[int, int], Outcomes]
    ordered: bool = False


def stated_privacy(mechanism: Any, delta: float | None = None) -> tuple[float, float]:
    """Return the epsilon and delta that a mechanism states; for another delta, the epsilon that its loss proves."""
    if isinstance(mechanism, ImmutableArgmax):
        return mechanism.claimed_loss(mechanism.max_queries).epsilon(delta or 0.0), delta or 0.0
    if not isinstance(mechanism, Mechanism | VoteAggregator):
        raise InputError("An audit takes a mechanism, for example RandomizedResponse(epsilon=1.0).")
    own = float(getattr(mechanism, "delta", 0.0))
    if delta is not None and delta != own:
        loss = mechanism.loss(*mechanism.caps) if isinstance(mechanism, VoteAggregator) else mechanism.loss()
        return loss.epsilon(delta), delta
    if isinstance(mechanism, VoteAggregator):
        return mechanism.guarantee(own).epsilon, own
    return float(mechanism.price()[0]), own


def worst_neighbor_pairs(mechanism: Any) -> list[NeighborPair]:
    """Return pairs of neighboring worlds with a large privacy loss, for a mechanism of this library."""
    if hasattr(mechanism, "aggregator") and isinstance(mechanism.aggregator, VoteAggregator):  # of teachers
        return worst_neighbor_pairs(mechanism.aggregator)
    for kind, build in _PAIR_BUILDERS:
        if isinstance(mechanism, kind):
            return build(mechanism)
    raise InputError("For this mechanism, name the neighboring labels to compare: pairs=pair_of_labels(...).")


def pair_of_labels(
    mechanism: Mechanism,
    space: LabelSpace,
    codes: Sequence[int] | Codes,
    neighbor_codes: Sequence[int] | Codes,
    view: Callable[[Release], Sequence[int]],
    ordered: bool = False,
) -> NeighborPair:
    """Return two worlds by their label codes, which must differ in one row.

    Args:
        mechanism: The mechanism.
        space: The declared labels.
        codes: The labels of the first world.
        neighbor_codes: The labels of the second world.
        view: Returns whole numbers that describe a release.
        ordered: Whether events are thresholds of these numbers.

    Raises:
        InputError: The labels do not differ in exactly one row.
    """
    pair = [np.asarray(world, np.int64) for world in (codes, neighbor_codes)]
    if pair[0].shape != pair[1].shape or (pair[0] != pair[1]).sum() != 1:
        raise InputError("Neighboring labels have equally many rows and differ in one of them.")
    mechanism.check(space, pair[0].size)

    def draw(world: int, n_draws: int) -> Outcomes:
        return np.array([view(draw_release(mechanism, pair[world], space)) for _ in range(n_draws)], np.int64)

    return NeighborPair("labels that differ in one row", draw, ordered)


def pair_of_rows(
    mechanism: Mechanism | Callable[[int], Mechanism],
    space: LabelSpace,
    labels: tuple[int, int],
    view: Callable[[Any], NDArray[Any]],
    ordered: bool = False,
) -> NeighborPair:
    """Return two worlds for a mechanism that acts row by row: every row has the one label, or every row the other.

    Then a release of many rows is as many draws.

    Args:
        mechanism: The mechanism; or, where it has an array with a row for each label, a function that makes it for a
            number of rows.
        space: The declared labels.
        labels: The codes of the two labels.
        view: Returns whole numbers for each row of a release.
        ordered: Whether events are thresholds of these numbers.
    """

    def draw(world: int, n_draws: int) -> Outcomes:
        batched = mechanism if isinstance(mechanism, Mechanism) else mechanism(n_draws)
        batched.check(space, n_draws)
        views = np.asarray(view(draw_release(batched, np.full(n_draws, labels[world], np.int64), space)))
        return views.reshape(n_draws, -1).astype(np.int64)

    return NeighborPair(f"labels {labels[0]} and {labels[1]}", draw, ordered)


def pair_of_votes(
    mechanism: VoteAggregator, counts: Sequence[int], neighbor_counts: Sequence[int], name: str = ""
) -> NeighborPair:
    """Return two worlds by the votes on a query, which differ by one vote that moves to another class.

    A run repeats the query as often as the mechanism allows. Where answers are independent, many runs are drawn at
    once.
    """
    pair = np.array([counts, neighbor_counts], np.int64)
    difference = pair[1] - pair[0]
    if pair.ndim != 2 or np.abs(difference).sum() > 2 or np.abs(difference).max() > 1:
        raise InputError("Neighboring votes differ by one vote that moves from one class to another.")
    max_queries, max_answers = mechanism.caps
    is_stateful = isinstance(mechanism, StableVote)
    run_length = min(max_queries, max_answers, _MAX_QUERIES)

    def draw_runs(world: int, n_runs: int) -> NDArray[np.int64]:
        if is_stateful:
            votes = np.tile(pair[world], (run_length, 1))
            return np.array([mechanism.draw(votes).codes for _ in range(n_runs)])
        caps: dict[str, int] = {"max_queries": run_length * n_runs}
        caps |= {"max_answers": run_length * n_runs} if isinstance(mechanism, ConfidentGNMax) else {}
        batched: Any = replace(mechanism, **caps)  # type: ignore[type-var]
        return batched.draw(np.tile(pair[world], (run_length * n_runs, 1))).codes.reshape(n_runs, run_length)

    def draw(world: int, n_draws: int) -> Outcomes:
        n_runs_at_once = max(1, _MAX_VOTES_AT_ONCE // (run_length * pair.shape[1]))
        sizes = [min(n_runs_at_once, n_draws - start) for start in range(0, n_draws, n_runs_at_once)]
        codes = np.concatenate([draw_runs(world, size) for size in sizes])
        if run_length == 1:
            return codes
        return np.stack([(codes == 0).sum(axis=1), (codes == 1).sum(axis=1), (codes < 0).sum(axis=1)], axis=1)

    return NeighborPair(name or f"votes {list(counts)} and {list(neighbor_counts)}", draw, ordered=run_length > 1)


def draw_release(mechanism: Mechanism, codes: Codes, space: LabelSpace) -> Any:
    """Draw a release of these labels as a vault does, with the bits of the operating system."""
    guarantee = Guarantee(0.0)
    release_fields = {
        "space": space,
        "guarantee": guarantee,
        "mechanism": type(mechanism).__name__,
        "n_rows": codes.size,
    }
    return mechanism.prepare(codes, space, {}).draw(codes, release_fields, SYSTEM)


def project_on_move(values: NDArray[Any], mean: NDArray[Any], neighbor_mean: NDArray[Any]) -> Outcomes:
    """Return two views of noisy numbers, one draw in each row, which compare them with two means."""
    move = (mean - neighbor_mean).astype(np.int64)
    offsets = values.astype(np.int64) - neighbor_mean.astype(np.int64)
    return np.stack([offsets @ move, (np.abs(offsets) - np.abs(offsets - move)).sum(axis=1)], axis=1)


def _response_pairs(mechanism: RandomizedResponse) -> list[NeighborPair]:
    return [pair_of_rows(mechanism, _space(2), (0, 1), lambda release: release.codes)]


def _candidate_pairs(mechanism: RRTopK | RRWithPrior | RRMaxInformation) -> list[NeighborPair]:
    """Return the likeliest label against the next, and against the last, which may be no candidate."""
    prior = mechanism.prior[0]
    first, second, last = (int(np.argsort(-prior, kind="stable")[rank]) for rank in (0, 1, -1))

    def batched(n_rows: int) -> Mechanism:
        return replace(mechanism, prior=np.tile(prior, (n_rows, 1)))

    pairs = dict.fromkeys([(first, second), (first, last)])
    return [pair_of_rows(batched, _space(prior.size), pair, lambda release: release.codes) for pair in pairs]


def _one_hot_pairs(mechanism: OneHotLaplace | OneHotGaussian) -> list[NeighborPair]:
    means = getattr(mechanism, "height", 1) * np.eye(2, dtype=np.int64)
    return [
        pair_of_rows(
            mechanism, _space(2), (0, 1), lambda release: project_on_move(release.values, *means), ordered=True
        )
    ]


def _histogram_pairs(mechanism: GroupHistogram) -> list[NeighborPair]:
    means = np.eye(2, dtype=np.int64)

    def draw(world: int, n_draws: int) -> Outcomes:
        batched = replace(mechanism, groups=np.arange(n_draws))
        return project_on_move(
            draw_release(batched, np.full(n_draws, world, np.int64), _space(2)).counts, means[0], means[1]
        )

    return [NeighborPair("labels 0 and 1 of the one row of a group", draw, ordered=True)]


def _largest_row(mechanism: LinearQuery) -> tuple[NDArray[np.float64], int]:
    """Return the row with the largest sensitivity, and how many copies of it are drawn at once."""
    query: Any = mechanism.query
    row = query[[int(np.argmax((abs(query) ** (2 if mechanism.delta else 1)).sum(axis=1)))]]
    dense = np.asarray(row.toarray() if isinstance(row, csr_array) else row, np.float64)[0]
    return dense, max(1, _MAX_COLUMNS // dense.size)


def _linear_pairs(mechanism: LinearQuery) -> list[NeighborPair]:
    """Return labels of two classes and, as pure noise differs then, of three."""
    row, n_copies = _largest_row(mechanism)
    batched = replace(mechanism, query=np.kron(np.eye(n_copies), row[None, :]))
    step = np.rint(row * batched.grid_scale).astype(np.int64)

    def of_classes(n_classes: int) -> NeighborPair:
        means = np.stack([np.outer(step, np.arange(n_classes) == label).ravel() for label in (0, 1)])

        def draw(world: int, n_draws: int) -> Outcomes:
            codes, space = np.full(n_copies, world, np.int64), _space(n_classes)
            parts = [
                draw_release(batched, codes, space).moments.reshape(n_copies, -1) for _ in range(0, n_draws, n_copies)
            ]
            return project_on_move(np.concatenate(parts)[:n_draws], means[0], means[1])

        return NeighborPair(f"labels 0 and 1 of {n_classes} in the longest row", draw, ordered=True)

    return [of_classes(n_classes) for n_classes in ((2,) if mechanism.delta else (2, 3))]


def _number_pairs(mechanism: RROnBins | UnbiasedBins) -> list[NeighborPair]:
    """Return the two ends of the range, which are in the first bin and in the last."""
    prior = np.atleast_2d(mechanism.prior)[0]
    options: dict[str, Any] = {"loss": mechanism.objective} if isinstance(mechanism, RROnBins) else {}
    single = type(mechanism)(mechanism.epsilon, prior, **options)
    return [pair_of_rows(single, _range(prior.size), (0, prior.size - 1), lambda release: release.codes)]


def _grid_pairs(mechanism: DiscreteLaplace) -> list[NeighborPair]:
    return [pair_of_rows(mechanism, _range(_N_VALUES), (0, _N_VALUES - 1), lambda release: release.codes, ordered=True)]


def _sum_pairs(mechanism: NumberSums) -> list[NeighborPair]:
    """Return the ends of the range for the largest row; their squares are equal, so that only the sums differ."""
    row, n_copies = _largest_row(mechanism)
    batched = replace(mechanism, query=np.kron(np.eye(n_copies), row[None, :]))
    move = np.rint(row * batched.grid_scale).astype(np.int64) * (mechanism.n_values - 1)

    def draw(world: int, n_draws: int) -> Outcomes:
        codes = np.full(n_copies, (0, mechanism.n_values - 1)[world], np.int64)
        space = _range(mechanism.n_values)
        parts = [
            draw_release(batched, codes, space).sums[:-1].reshape(n_copies, -1) for _ in range(0, n_draws, n_copies)
        ]
        return project_on_move(np.concatenate(parts)[:n_draws], -move, move)

    return [NeighborPair("both ends of the range in the largest row", draw, ordered=True)]


def _loss_pairs(mechanism: LossSum | NoisyMinLoss) -> list[NeighborPair]:
    """Return labels at both ends, for a prediction at one end; of two candidates, one is right at each end."""
    is_loss_sum = isinstance(mechanism, LossSum)
    small = replace(mechanism, predictions=np.array([0.0] if is_loss_sum else [[0.0, 1.0]]))
    view: Callable[[Any], list[int]] = lambda release: [release.total if is_loss_sum else release.best_index]  # noqa: E731
    return [pair_of_labels(small, _range(2), [0], [1], view, ordered=is_loss_sum)]


def _correct_pairs(mechanism: CorrectCount) -> list[NeighborPair]:
    small = replace(mechanism, predictions=np.zeros(1, np.int64))
    return [pair_of_labels(small, _space(2), [0], [1], lambda release: [release.n_correct], True)]  # type: ignore[attr-defined]


def _best_pairs(mechanism: BestCandidate) -> list[NeighborPair]:
    small = replace(mechanism, predictions=np.array([[0, 1]]))
    return [pair_of_labels(small, _space(2), [0], [1], lambda release: [release.best_index])]  # type: ignore[attr-defined]


def _score_pairs(mechanism: HighestScore) -> list[NeighborPair]:
    """Return one row whose label decides between two candidates, with the sensitivity of the mechanism itself."""
    half = mechanism.sensitivity // 2
    small = replace(mechanism, scores=np.array([[[half, 0]], [[0, mechanism.sensitivity - half]]]), row_ids=None)
    return [pair_of_labels(small, _space(2), [0], [1], lambda release: [release.best_index])]  # type: ignore[attr-defined]


def _residual_pairs(mechanism: LargestResiduals) -> list[NeighborPair]:
    """Return two rows that share a cell in the first cross alone: the label of one changes the scores' difference."""
    pairs = np.tile([[0, 2], [0, 1]], (int(mechanism.n_picks), 1))
    n_classes = mechanism.expected_probabilities.shape[1]
    small = replace(
        mechanism,
        column_bins=np.array([[0, 0, 0], [0, 1, 0]]),
        column_pairs=pairs,
        expected_probabilities=np.eye(2, n_classes),
    )
    view: Callable[[Any], tuple[int, ...]] = lambda release: release.picks  # noqa: E731
    return [pair_of_labels(small, _space(n_classes), [0, 0], [1, 0], view)]


def _vote_pairs(mechanism: Any) -> list[NeighborPair]:
    """Return near ties, and gaps as large as the noise, where the probability of the second class changes most."""
    scale = mechanism.scale if isinstance(mechanism, LNMax | ImmutableArgmax) else mechanism.sigma
    return [_leading_pair(mechanism, round(4 * scale) + 2, gap) for gap in _gaps(scale)]


def _confident_pairs(mechanism: ConfidentGNMax) -> list[NeighborPair]:
    """Return largest counts at the threshold and on both sides of it, with small and large gaps to the next count."""
    pairs = []
    for shift in (-1.5, 0.0, 1.5):
        top = max(2, round(mechanism.threshold + shift * mechanism.sigma1))
        pairs += [_leading_pair(mechanism, top - gap, gap) for gap in {*_gaps(mechanism.sigma2), top} if gap <= top]
    return pairs


def _stable_pairs(mechanism: StableVote) -> list[NeighborPair]:
    """Return distances at the threshold and around it; and a tie, whose exact winner must not be released."""
    steps = [round(factor * float(mechanism.noise_scale)) for factor in (-2, -1, 0, 1)]
    distances = sorted({max(2, mechanism.threshold + step) for step in steps})
    return [_leading_pair(mechanism, 1, 0), *(_leading_pair(mechanism, 0, 2 * distance - 1) for distance in distances)]


def _gaps(scale: float) -> list[int]:
    return sorted({0, 1, max(1, round(scale)), max(1, round(2 * scale))})


def _leading_pair(mechanism: VoteAggregator, low: int, gap: int) -> NeighborPair:
    """Return two classes, the first ahead by `gap` votes; in the other world one of its votes goes to the second."""
    counts, neighbor_counts = (low + gap, low), (low + gap - 1, low + 1)
    return pair_of_votes(mechanism, counts, neighbor_counts)


def _space(n_classes: int) -> LabelSpace:
    return LabelSpace(list(range(n_classes)))


def _range(n_values: int) -> LabelSpace:
    return LabelSpace.range(0, n_values - 1, 1)


_PAIR_BUILDERS: list[tuple[Any, Callable[[Any], list[NeighborPair]]]] = [
    (RandomizedResponse, _response_pairs),
    ((RRTopK, RRWithPrior, RRMaxInformation), _candidate_pairs),
    ((OneHotLaplace, OneHotGaussian), _one_hot_pairs),
    (GroupHistogram, _histogram_pairs),
    (NumberSums, _sum_pairs),
    (LinearQuery, _linear_pairs),
    ((RROnBins, UnbiasedBins), _number_pairs),
    (DiscreteLaplace, _grid_pairs),
    ((LossSum, NoisyMinLoss), _loss_pairs),
    (CorrectCount, _correct_pairs),
    (BestCandidate, _best_pairs),
    (HighestScore, _score_pairs),
    (LargestResiduals, _residual_pairs),
    (ConfidentGNMax, _confident_pairs),
    (StableVote, _stable_pairs),
    (VoteAggregator, _vote_pairs),
]
