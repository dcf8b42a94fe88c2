"""What leaves the vault: frozen evidence about labels, with its guarantee."""

from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.derived import Joined, Relabelled
from labeldp.releases.moments import NoisyMoments
from labeldp.releases.onehot import NoisyOneHot
from labeldp.releases.responses import Responses

__all__ = ["Joined", "NoisyCounts", "NoisyMoments", "NoisyOneHot", "Relabelled", "Release", "Responses"]
