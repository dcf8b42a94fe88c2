"""Randomized response over all classes, or over the most probable classes of each row.

Proof, for every mechanism of this file. Fix a row and its set S of k candidates, which does not depend on the
row's label. The output o lies in S. For a label c in S, the offset between c and o (their positions in S, modulo
k) is 0 with probability e/(e+k-1) and each other value with probability 1/(e+k-1), with e = exp(epsilon). For a
label outside S, o is uniform: 1/k. Since 1/(e+k-1) <= 1/k <= e/(e+k-1), any two labels give any output with
probabilities within a factor e. The sampler compares a uniform real with these numbers themselves, not with
rounded ones (`noise.samplers.Categorical`), so the factor is met exactly. Rows are drawn independently, so a changed
label changes one factor only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import PerLabelMechanism, check_distributions, frozen_copy
from labeldp.privacy.noise.samplers import fill_in_blocks, response_offset, uniform_offset
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.responses import Responses


@dataclass(frozen=True, eq=False)
class RandomizedResponse(PerLabelMechanism):
    """Keep each label with odds exp(epsilon) against each other class (Warner 1965)."""

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Accept every vault."""

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Responses:
        """Add a random offset, modulo the number of classes, to each code."""
        n_classes = len(release_fields["space"])
        offset = response_offset(as_fraction(self.epsilon), n_classes)

        def respond(block: slice) -> Codes:
            block_codes = codes[block]
            shifted = block_codes + offset.sample(block_codes.size, bits).astype(np.int32)
            shifted -= n_classes * (shifted >= n_classes)
            return np.where(block_codes == MISSING, MISSING, shifted)

        noisy_codes = fill_in_blocks(codes.size, codes.dtype, respond)
        return Responses(**release_fields, codes=noisy_codes, epsilon=self.epsilon)


@dataclass(frozen=True, eq=False)
class _CandidateResponse(PerLabelMechanism):
    prior: NDArray[np.floating]

    def __post_init__(self) -> None:
        super().__post_init__()
        prior = np.asarray(self.prior)
        floating = np.issubdtype(prior.dtype, np.floating)
        object.__setattr__(self, "prior", frozen_copy(prior, prior.dtype if floating else np.float64))

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that the prior is a distribution for each row."""
        check_distributions(self.prior, space, n_rows)

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Responses:
        """Draw a response among the most probable classes of each row."""
        order = np.argsort(-self.prior, axis=1, kind="stable")
        n_candidates = self.count_candidates(np.take_along_axis(self.prior, order, axis=1))
        labeled = codes != MISSING
        rank = np.argmax(order == codes[:, None], axis=1)
        noisy_codes = np.full(codes.size, MISSING, codes.dtype)
        for k in np.unique(n_candidates[labeled]):
            # Labels inside and outside the candidate set: see the proof in the module docstring.
            inside = np.flatnonzero(labeled & (n_candidates == k) & (rank < k))
            outside = np.flatnonzero(labeled & (n_candidates == k) & (rank >= k))
            offset = response_offset(as_fraction(self.epsilon), int(k)).sample(inside.size, bits)
            noisy_codes[inside] = order[inside, (rank[inside] + offset) % k]
            noisy_codes[outside] = order[outside, uniform_offset(int(k)).sample(outside.size, bits)]
        is_candidate = np.zeros(self.prior.shape, bool)
        np.put_along_axis(is_candidate, order, np.arange(self.prior.shape[1]) < n_candidates[:, None], axis=1)
        return Responses(
            **release_fields, codes=noisy_codes, epsilon=self.epsilon, candidates=np.packbits(is_candidate, axis=1)
        )

    def count_candidates(self, sorted_prior: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the number of candidates of each row. `sorted_prior` has the most probable class first."""
        raise TypeError("Use RRTopK or RRWithPrior.")


@dataclass(frozen=True, eq=False)
class RRTopK(_CandidateResponse):
    """Randomized response over the `k` most probable classes of each row (Ghazi et al. 2021, Algorithm 1)."""

    k: int

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check the prior and k."""
        super().check(space, n_rows)
        if isinstance(self.k, bool) or not isinstance(self.k, int | np.integer) or not 1 <= self.k <= len(space):
            raise InputError(f"k must be a whole number from 1 to {len(space)}, the number of classes.")

    def count_candidates(self, sorted_prior: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return k for each row."""
        return np.full(len(sorted_prior), self.k)


@dataclass(frozen=True, eq=False)
class RRWithPrior(_CandidateResponse):
    """Randomized response over the number of candidates that maximizes the accuracy of each row.

    Let w_k be the prior mass of the k most probable classes. The response is correct with probability
    w_k / (1 + (k - 1) exp(-epsilon)) under the prior, and k maximizes that for each row. No other mechanism with this
    epsilon has a higher accuracy (Ghazi et al. 2021, Theorem 3).
    """

    def count_candidates(self, sorted_prior: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the best number of candidates for each row."""
        n_others = np.arange(sorted_prior.shape[1])
        accuracy = np.cumsum(sorted_prior, axis=1, dtype=np.float64) / (1 + n_others * np.exp(-self.epsilon))
        return accuracy.argmax(axis=1) + 1


@dataclass(frozen=True, eq=False)
class RRMaxInformation(_CandidateResponse):
    """Randomized response over the number of candidates that maximizes the information of each row.

    `RRWithPrior` has one candidate where the prior is confident, because its most probable class has the highest
    accuracy. Such a response has no information about the label. Here k maximizes the mutual information of label and
    response under the prior, for each row. It is 1 only where the prior has one class. Learners that use the evidence
    of a response gain from this, although its accuracy is lower.
    """

    def count_candidates(self, sorted_prior: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the number of candidates with the most information for each row."""
        information = [response_information(sorted_prior, k, self.epsilon) for k in range(1, sorted_prior.shape[1] + 1)]
        return np.argmax(np.round(information, 12), axis=0) + 1


def response_information(sorted_prior: NDArray[np.floating], k: int, epsilon: float) -> NDArray[np.float64]:
    """Return the information, in nats, of a response over the `k` most probable classes about each row's label.

    It is the entropy of the response minus its entropy given the label. The latter is that of randomized response for
    a label among the candidates, and log k for another label.
    """
    candidate_prior = sorted_prior[:, :k].astype(np.float64)
    candidate_mass = candidate_prior.sum(axis=1, keepdims=True)
    p_other = 1 / (np.exp(epsilon) + k - 1)
    p_same = 1 - (k - 1) * p_other
    response_probabilities = (
        p_same * candidate_prior + p_other * (candidate_mass - candidate_prior) + (1 - candidate_mass) / k
    )
    response_entropy = _entropy_terms(np.array([p_same])) + (k - 1) * _entropy_terms(np.array([p_other]))
    return (
        _entropy_terms(response_probabilities).sum(axis=1)
        - candidate_mass[:, 0] * response_entropy
        - (1 - candidate_mass[:, 0]) * np.log(k)
    )


def _entropy_terms(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -p log p, and 0 for 0."""
    return -probability * np.log(np.maximum(probability, np.finfo(np.float64).tiny))
