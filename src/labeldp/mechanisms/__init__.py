"""The ways for labels to leave the vault: one file a family, each with its proof."""

from labeldp.mechanisms.additive import OneHotGaussian, OneHotLaplace
from labeldp.mechanisms.base import Mechanism
from labeldp.mechanisms.linear import GroupHistogram, LinearQuery
from labeldp.mechanisms.randomized_response import RandomizedResponse, RRInformative, RRTopK, RRWithPrior
from labeldp.mechanisms.selection import BestCandidate, RightCount
from labeldp.mechanisms.stable import ImmutableArgmax, StableVote
from labeldp.mechanisms.voting import Answers, ConfidentGNMax, GNMax, LNMax, VoteMechanism

__all__ = [
    "Answers",
    "BestCandidate",
    "ConfidentGNMax",
    "GNMax",
    "GroupHistogram",
    "ImmutableArgmax",
    "LNMax",
    "LinearQuery",
    "Mechanism",
    "OneHotGaussian",
    "OneHotLaplace",
    "RRInformative",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "RightCount",
    "StableVote",
    "VoteMechanism",
]
