"""Label-private mechanisms: one file per family, with its proof in the module docstring."""

from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.mechanisms.linear import GroupHistogram, LinearQuery
from labeldp.privacy.mechanisms.numeric_responses import DiscreteLaplace, RROnBins, UnbiasedBins
from labeldp.privacy.mechanisms.numeric_sums import LossSum, NoisyMinLoss, NumberSums
from labeldp.privacy.mechanisms.one_hot import OneHotGaussian, OneHotLaplace
from labeldp.privacy.mechanisms.randomized_response import RandomizedResponse, RRMaxInformation, RRTopK, RRWithPrior
from labeldp.privacy.mechanisms.residual_selection import LargestResiduals
from labeldp.privacy.mechanisms.selection import BestCandidate, CorrectCount, HighestScore
from labeldp.privacy.mechanisms.stable import ImmutableArgmax, StableVote
from labeldp.privacy.mechanisms.vote_aggregators import Answers, ConfidentGNMax, GNMax, LNMax, VoteAggregator

__all__ = [
    "Answers",
    "BestCandidate",
    "ConfidentGNMax",
    "CorrectCount",
    "DiscreteLaplace",
    "GNMax",
    "GroupHistogram",
    "HighestScore",
    "ImmutableArgmax",
    "LNMax",
    "LargestResiduals",
    "LinearQuery",
    "LossSum",
    "Mechanism",
    "NoisyMinLoss",
    "NumberSums",
    "OneHotGaussian",
    "OneHotLaplace",
    "RRMaxInformation",
    "RROnBins",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "StableVote",
    "UnbiasedBins",
    "VoteAggregator",
]
