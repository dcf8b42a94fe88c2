"""Generalised linear models fitted to noisy sums of public columns by label."""

from labeldp.learn.additive.bins import Bins, Column
from labeldp.learn.additive.design import BinDesign, DenseDesign, Design
from labeldp.learn.additive.fit import Component, Fit, Line, fit_block, fit_sums, prior_of

__all__ = [
    "BinDesign",
    "Bins",
    "Column",
    "Component",
    "DenseDesign",
    "Design",
    "Fit",
    "Line",
    "fit_block",
    "fit_sums",
    "prior_of",
]
