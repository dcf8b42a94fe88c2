"""Releases: immutable, noisy information about labels, with its guarantee."""

from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.derived import JoinedRelease, PseudoLabels
from labeldp.releases.moments import NoisyMoments, NoisySums
from labeldp.releases.numeric import NoisyBins, NoisyGrid, NumericResponses
from labeldp.releases.onehot import NoisyOneHot
from labeldp.releases.responses import Responses
from labeldp.releases.scores import Choice, Choices, NoisyCorrectCount, NoisyLoss

__all__ = [
    "Choice",
    "Choices",
    "JoinedRelease",
    "NoisyBins",
    "NoisyCorrectCount",
    "NoisyCounts",
    "NoisyGrid",
    "NoisyLoss",
    "NoisyMoments",
    "NoisyOneHot",
    "NoisySums",
    "NumericResponses",
    "PseudoLabels",
    "Release",
    "Responses",
]
