"""Generalized linear models fitted to noisy sums of public columns by label."""

from labeldp.learn.additive.bins import BasisFunctions, BinnedColumn, Bins
from labeldp.learn.additive.design import BinDesign, DenseDesign, Design
from labeldp.learn.additive.fit import FitResult, PriorComponent, fit_block, fit_sums, make_prior
from labeldp.learn.additive.regression import AdditiveNumberSums
from labeldp.learn.additive.terms import AdditiveSums, CrossSums

__all__ = [
    "AdditiveNumberSums",
    "AdditiveSums",
    "BasisFunctions",
    "BinDesign",
    "BinnedColumn",
    "Bins",
    "CrossSums",
    "DenseDesign",
    "Design",
    "FitResult",
    "PriorComponent",
    "fit_block",
    "fit_sums",
    "make_prior",
]
