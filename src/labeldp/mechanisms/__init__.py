"""The ways for labels to leave the vault: one file a family, each with its proof."""

from labeldp.mechanisms.additive import OneHotGaussian, OneHotLaplace
from labeldp.mechanisms.base import Mechanism
from labeldp.mechanisms.linear import GroupHistogram, LinearQuery
from labeldp.mechanisms.randomized_response import RandomizedResponse, RRTopK, RRWithPrior
from labeldp.mechanisms.selection import BestCandidate, RightCount

__all__ = [
    "BestCandidate",
    "GroupHistogram",
    "LinearQuery",
    "Mechanism",
    "OneHotGaussian",
    "OneHotLaplace",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "RightCount",
]
