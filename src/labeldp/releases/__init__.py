"""What leaves the vault: frozen evidence about labels, with its guarantee."""

from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.derived import Joined, Relabelled
from labeldp.releases.moments import NoisyMoments, NoisySums
from labeldp.releases.numbers import NoisyBins, NoisyGrid, Numbers
from labeldp.releases.onehot import NoisyOneHot
from labeldp.releases.responses import Responses
from labeldp.releases.scores import Choice, Choices, NoisyLoss, NoisyRight

__all__ = [
    "Choice",
    "Choices",
    "Joined",
    "NoisyBins",
    "NoisyCounts",
    "NoisyGrid",
    "NoisyLoss",
    "NoisyMoments",
    "NoisyOneHot",
    "NoisyRight",
    "NoisySums",
    "Numbers",
    "Relabelled",
    "Release",
    "Responses",
]
