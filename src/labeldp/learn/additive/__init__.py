"""Generalised linear models fitted to noisy sums of public columns by label."""

from labeldp.learn.additive.bins import Bins, Column, Functions
from labeldp.learn.additive.design import BinDesign, DenseDesign, Design
from labeldp.learn.additive.fit import Component, Fit, fit_block, fit_sums, prior_of
from labeldp.learn.additive.numbers import NumberSums
from labeldp.learn.additive.terms import AdditiveSums, CrossSums

__all__ = [
    "AdditiveSums",
    "BinDesign",
    "Bins",
    "Column",
    "Component",
    "CrossSums",
    "DenseDesign",
    "Design",
    "Fit",
    "Functions",
    "NumberSums",
    "fit_block",
    "fit_sums",
    "prior_of",
]
