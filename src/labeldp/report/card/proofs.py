"""What each mechanism tells, and where its proof stands: in the text at the top of its module."""

import inspect
import sys
from importlib import import_module
from typing import Any

_ROOMS = ("labeldp.mechanisms", "labeldp.teach.votes")


def what_it_tells(name: str) -> str:
    """Return the first sentence about a mechanism."""
    found = _find(name)
    return _first_sentence(inspect.getdoc(found) or "") if found is not None else "Unknown to this version."


def proofs(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the modules whose text proves the guarantee of a ledger entry."""
    names = [str(entry.get("mechanism", ""))]
    votes = (entry.get("parameters") or {}).get("votes")
    if isinstance(votes, str):  # teachers' votes are told by another mechanism, which has a proof of its own
        names.append(votes.partition("(")[0])
    found = [_find(name) for name in names]
    return tuple(dict.fromkeys(each.__module__ for each in found if each is not None))


def proof_title(module: str) -> str:
    """Return the first line of a proof."""
    text = (sys.modules[module].__doc__ or "") if module in sys.modules else ""
    return text.strip().partition("\n")[0].rstrip(".")


def _find(name: str) -> Any:
    if not name.isidentifier():
        return None
    for room in _ROOMS:
        found = getattr(import_module(room), name, None)
        if inspect.isclass(found):
            return found
    return None


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]
