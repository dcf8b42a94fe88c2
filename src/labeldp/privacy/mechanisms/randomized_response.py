"""Randomized response, over all classes or over the likely ones of each row.

Proof, for every mechanism of this file. Fix a row and its set S of k candidates, which does not depend on the
row's label. The output o lies in S. For a label c in S, the offset between c and o (their places in S, modulo
k) is 0 with probability e/(e+k-1) and each other value with probability 1/(e+k-1), e = exp(epsilon). For a
label outside S, o is uniform: 1/k. Since 1/(e+k-1) <= 1/k <= e/(e+k-1), any two labels give any output with
probabilities within a factor e. The sampler compares a uniform real with these numbers themselves, not with
rounded ones (`noise.Categorical`), so the factor is met exactly. Rows are drawn independently, so a changed
label changes one factor only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.exact_real import exactly
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import ByLabel, check_distributions, private_copy
from labeldp.privacy.noise.samplers import in_blocks, response_offset, uniform_offset
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.responses import Responses


@dataclass(frozen=True, eq=False)
class RandomizedResponse(ByLabel):
    """Keep each label with odds exp(epsilon) against each other class (Warner 1965)."""

    def check(self, space: LabelSpace, rows: int) -> None:
        """Fit every vault."""

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Responses:
        """Add a random offset, modulo the number of classes, to each code."""
        classes = len(common["space"])
        offset = response_offset(exactly(self.epsilon), classes)

        def block(rows: slice) -> Codes:
            here = codes[rows]
            moved = here + offset.sample(here.size, bits).astype(np.int32)
            moved -= classes * (moved >= classes)
            return np.where(here == MISSING, MISSING, moved)

        noisy = in_blocks(codes.size, codes.dtype, block)
        return Responses(**common, codes=noisy, epsilon=self.epsilon)


@dataclass(frozen=True, eq=False)
class _OverCandidates(ByLabel):
    prior: NDArray[np.floating]

    def __post_init__(self) -> None:
        super().__post_init__()
        prior = np.asarray(self.prior)
        floating = np.issubdtype(prior.dtype, np.floating)
        object.__setattr__(self, "prior", private_copy(prior, prior.dtype if floating else np.float64))

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check that the prior is a distribution for each row."""
        check_distributions(self.prior, space, rows)

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Responses:
        """Respond at random over each row's most likely classes."""
        order = np.argsort(-self.prior, axis=1, kind="stable")
        count = self.candidates(np.take_along_axis(self.prior, order, axis=1))
        labelled = codes != MISSING
        place = np.argmax(order == codes[:, None], axis=1)
        noisy = np.full(codes.size, MISSING, codes.dtype)
        for k in np.unique(count[labelled]):
            # Labels inside and outside the candidate set: see the proof at the top.
            inside = np.flatnonzero(labelled & (count == k) & (place < k))
            outside = np.flatnonzero(labelled & (count == k) & (place >= k))
            offset = response_offset(exactly(self.epsilon), int(k)).sample(inside.size, bits)
            noisy[inside] = order[inside, (place[inside] + offset) % k]
            noisy[outside] = order[outside, uniform_offset(int(k)).sample(outside.size, bits)]
        chosen = np.zeros(self.prior.shape, bool)
        np.put_along_axis(chosen, order, np.arange(self.prior.shape[1]) < count[:, None], axis=1)
        return Responses(**common, codes=noisy, epsilon=self.epsilon, candidates=np.packbits(chosen, axis=1))

    def candidates(self, ranked: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return how many classes of each row are candidates; `ranked` has the likeliest class first."""
        raise TypeError("Use RRTopK or RRWithPrior.")


@dataclass(frozen=True, eq=False)
class RRTopK(_OverCandidates):
    """Randomized response over each row's `k` likeliest classes (Ghazi et al. 2021, Algorithm 1)."""

    k: int

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check the prior and k."""
        super().check(space, rows)
        if isinstance(self.k, bool) or not isinstance(self.k, int | np.integer) or not 1 <= self.k <= len(space):
            raise InputError(f"k must be a whole number from 1 to {len(space)}, the number of classes.")

    def candidates(self, ranked: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return k for each row."""
        return np.full(len(ranked), self.k)


@dataclass(frozen=True, eq=False)
class RRWithPrior(_OverCandidates):
    """Randomized response over as many likely classes as make the right answer likeliest.

    With w_k the prior mass of the k likeliest classes, the answer is right with probability
    w_k / (1 + (k - 1) exp(-epsilon)) under the prior; k maximises that for each row. No other mechanism with
    this epsilon is right more often (Ghazi et al. 2021, Theorem 3).
    """

    def candidates(self, ranked: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the best number of candidates for each row."""
        others = np.arange(ranked.shape[1])
        right = np.cumsum(ranked, axis=1, dtype=np.float64) / (1 + others * np.exp(-self.epsilon))
        return right.argmax(axis=1) + 1


@dataclass(frozen=True, eq=False)
class RRInformative(_OverCandidates):
    """Randomized response over as many likely classes as make the answer tell most of the label.

    `RRWithPrior` asks nothing where the prior is fairly sure: to repeat the prior is right most often. But a learner
    that reads evidence gains from answers, also where they are wrong more often. So k maximises the mutual information
    of label and answer under the prior, for each row, and is 1 only where the prior leaves no doubt.
    """

    def candidates(self, ranked: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the most telling number of candidates for each row."""
        told = [told_by_response(ranked, k, self.epsilon) for k in range(1, ranked.shape[1] + 1)]
        return np.argmax(np.round(told, 12), axis=0) + 1


def told_by_response(ranked: NDArray[np.floating], k: int, epsilon: float) -> NDArray[np.float64]:
    """Return the information, in nats, that a response over the `k` likeliest classes has about each row's label.

    It is the entropy of the answer less its entropy once the label is known: that of randomized response for a label
    among the candidates, log k for another one.
    """
    inside = ranked[:, :k].astype(np.float64)
    among = inside.sum(axis=1, keepdims=True)
    other = 1 / (np.exp(epsilon) + k - 1)
    kept = 1 - (k - 1) * other
    answer = kept * inside + other * (among - inside) + (1 - among) / k
    known = _surprise(np.array([kept])) + (k - 1) * _surprise(np.array([other]))
    return _surprise(answer).sum(axis=1) - among[:, 0] * known - (1 - among[:, 0]) * np.log(k)


def _surprise(chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -p log p, and 0 for 0."""
    return -chance * np.log(np.maximum(chance, np.finfo(np.float64).tiny))
