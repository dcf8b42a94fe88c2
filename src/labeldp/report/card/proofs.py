"""What each mechanism releases, and the module whose docstring contains its proof."""

import inspect
import sys
from importlib import import_module
from typing import Any

# The mechanisms that select a model.
SELECTORS = ("BestCandidate", "HighestScore", "NoisyMinLoss")

_MODULES = ("labeldp.privacy.mechanisms", "labeldp.privacy.teachers.teacher_votes")

# What each mechanism releases, for readers who do not know the code.
_DESCRIPTIONS = {
    "RandomizedResponse": "each label by itself: the true one with some probability, otherwise another class.",
    "RRTopK": "each label by itself, as one of the likely classes of its row: the true one with some probability.",
    "RRWithPrior": "each label by itself, as one of the likely classes of its row: the most accurate choice.",
    "RRMaxInformation": "each label by itself, as one of the likely classes of its row: the most informative choice.",
    "OneHotLaplace": "for each row and each class, a number with noise: larger where it is the label.",
    "OneHotGaussian": "for each row and each class, a number with noise: larger where it is the label.",
    "GroupHistogram": "how often each class occurs in each group of rows, with noise.",
    "LinearQuery": "the sums of the features of each class, with noise.",
    "CorrectCount": "how many predictions on held-out rows are correct, with noise.",
    "BestCandidate": "which of several models has the most correct predictions on held-out rows, by counts with noise.",
    "HighestScore": "which of several models is best on held-out rows by log-loss or AUC, by sums with noise.",
    "LargestResiduals": "which pairs of columns have cells whose class counts fit a model worst, by counts with noise.",
    "NoisyMinLoss": "which of several models has the smallest loss on held-out rows, by sums with noise.",
    "LossSum": "the total loss of predictions on held-out rows, with noise.",
    "NumberSums": "the sums of the features times the numbers, with noise.",
    "RROnBins": "each number by itself, as one of a few bins: the correct one with some probability.",
    "UnbiasedBins": "each number by itself, as one of a few numbers whose mean is unbiased.",
    "DiscreteLaplace": "each number by itself, with noise in proportion to the range.",
    "LNMax": "which class has most votes of teachers, after noise.",
    "GNMax": "which class has most votes of teachers, after noise.",
    "ConfidentGNMax": "which class has most votes of teachers, after noise, where many agree.",
    "StableVote": "which class has most votes of teachers, exactly, if many votes would have to change for another.",
    "ImmutableArgmax": "which class has most votes of teachers; NOT PRIVATE, despite its publication.",
    "TeacherVotes": "majority votes, with noise, of teachers that were trained on different labels, for some rows.",
    "plan": "nothing by itself; it is the charge for several releases, which cost less together than separately.",
}


def describe_mechanism(name: str) -> str:
    """Describe what a mechanism releases; for a mechanism of another library, return the start of its docstring."""
    if name in _DESCRIPTIONS:
        return _DESCRIPTIONS[name]
    found = _find(name)
    return _first_sentence(inspect.getdoc(found) or "") if found is not None else "Unknown to this version."


def proofs(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the modules whose docstrings prove the guarantee of a ledger entry."""
    names = [str(entry.get("mechanism", ""))]
    votes = (entry.get("parameters") or {}).get("aggregator")
    if isinstance(votes, str):  # another mechanism with its own proof releases the votes of teachers
        names.append(votes.partition("(")[0])
    if names == ["plan"]:
        return ("labeldp.accounting.losses",)
    found = [_find(name) for name in names]
    return tuple(dict.fromkeys(item.__module__ for item in found if item is not None))


def proof_title(module: str) -> str:
    """Return the first line of the docstring with a proof."""
    text = (sys.modules[module].__doc__ or "") if module in sys.modules else ""
    return text.strip().partition("\n")[0].rstrip(".")


def _find(name: str) -> Any:
    if not name.isidentifier():
        return None
    for module in _MODULES:
        found = getattr(import_module(module), name, None)
        if inspect.isclass(found):
            return found
    return None


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]
