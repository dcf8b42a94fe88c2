"""What each mechanism tells, and where its proof stands: in the text at the top of its module."""

import inspect
import sys
from importlib import import_module
from typing import Any

SELECTORS = ("BestCandidate", "HighestScore", "NoisyMinLoss")  # the mechanisms that choose a model

_MODULES = ("labeldp.privacy.mechanisms", "labeldp.privacy.teachers.teacher_votes")

# What each mechanism tells, for who has never seen the code.
_DESCRIPTIONS = {
    "RandomizedResponse": "each label by itself: the true one by chance, else another class.",
    "RRTopK": "each label by itself, as one of the classes that are likely for its row: the true one by chance.",
    "RRWithPrior": "each label by itself, as one of the classes that are likely for its row: right as often as can be.",
    "RRMaxInformation": "each label by itself, as one of the classes that are likely for its row: as telling as can be.",
    "OneHotLaplace": "for each row and each class, a number with noise: larger where it is the label.",
    "OneHotGaussian": "for each row and each class, a number with noise: larger where it is the label.",
    "GroupHistogram": "how often each class occurs in each group of rows, with noise.",
    "LinearQuery": "the sums of the features of each class, with noise.",
    "CorrectCount": "how many predictions on held-out rows are right, with noise.",
    "BestCandidate": "which of several models is right most often on held-out rows, by counts with noise.",
    "HighestScore": "which of several models is best on held-out rows by log-loss or AUC, by sums with noise.",
    "LargestResiduals": "which pairs of columns have cells whose class counts fit a model worst, by counts with noise.",
    "NoisyMinLoss": "which of several models errs least on held-out rows, by sums with noise.",
    "LossSum": "how far predictions on held-out rows are off in all, with noise.",
    "NumberSums": "the sums of the features times the numbers, with noise.",
    "RROnBins": "each number by itself, as one of a few bins: the right one by chance.",
    "UnbiasedBins": "each number by itself, as one of a few numbers whose mean is right.",
    "DiscreteLaplace": "each number by itself, with noise as wide as the range.",
    "LNMax": "which class has most votes of teachers, after noise.",
    "GNMax": "which class has most votes of teachers, after noise.",
    "ConfidentGNMax": "which class has most votes of teachers, after noise, where many agree.",
    "StableVote": "which class has most votes of teachers, exactly, where many votes would have to change for another.",
    "ImmutableArgmax": "which class has most votes of teachers; NOT PRIVATE, whatever was published.",
    "TeacherVotes": "what most teachers say of some rows, each of whom learnt from other labels, after noise.",
    "plan": "nothing by itself; it paid for the releases that are its steps, which together cost less than one by one.",
}


def describe_mechanism(name: str) -> str:
    """Say what a mechanism tells; of one that is not of this library, by its own first sentence."""
    if name in _DESCRIPTIONS:
        return _DESCRIPTIONS[name]
    found = _find(name)
    return _first_sentence(inspect.getdoc(found) or "") if found is not None else "Unknown to this version."


def proofs(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the modules whose text proves the guarantee of a ledger entry."""
    names = [str(entry.get("mechanism", ""))]
    votes = (entry.get("parameters") or {}).get("votes")
    if isinstance(votes, str):  # teachers' votes are told by another mechanism, which has a proof of its own
        names.append(votes.partition("(")[0])
    if names == ["plan"]:
        return ("labeldp.accounting.losses",)
    found = [_find(name) for name in names]
    return tuple(dict.fromkeys(each.__module__ for each in found if each is not None))


def proof_title(module: str) -> str:
    """Return the first line of a proof."""
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
