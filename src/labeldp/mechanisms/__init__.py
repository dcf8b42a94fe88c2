"""The ways for labels to leave the vault: one file a family, each with its proof."""

from labeldp.mechanisms.additive import OneHotGaussian, OneHotLaplace
from labeldp.mechanisms.base import Mechanism
from labeldp.mechanisms.binning import DiscreteLaplace, RROnBins, UnbiasedBins
from labeldp.mechanisms.crosses import LargestResiduals
from labeldp.mechanisms.linear import GroupHistogram, LinearQuery
from labeldp.mechanisms.randomized_response import RandomizedResponse, RRInformative, RRTopK, RRWithPrior
from labeldp.mechanisms.selection import BestCandidate, HighestScore, RightCount
from labeldp.mechanisms.stable import ImmutableArgmax, StableVote
from labeldp.mechanisms.sums import LeastLoss, LossSum, NumberQuery
from labeldp.mechanisms.voting import Answers, ConfidentGNMax, GNMax, LNMax, VoteMechanism

__all__ = [
    "Answers",
    "BestCandidate",
    "ConfidentGNMax",
    "DiscreteLaplace",
    "GNMax",
    "GroupHistogram",
    "HighestScore",
    "ImmutableArgmax",
    "LNMax",
    "LargestResiduals",
    "LeastLoss",
    "LinearQuery",
    "LossSum",
    "Mechanism",
    "NumberQuery",
    "OneHotGaussian",
    "OneHotLaplace",
    "RRInformative",
    "RROnBins",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "RightCount",
    "StableVote",
    "UnbiasedBins",
    "VoteMechanism",
]
