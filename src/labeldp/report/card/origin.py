"""The origin section of a card: data, model and versions of a training."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from labeldp.report.card.blocks import Block, TableBlock
from labeldp.report.card.formatting import truncate

# The maximum number of listed classes, and the length of all their names from which only three are listed.
_MAX_CLASSES, _MAX_LETTERS = 12, 200
# The maximum number of characters of a class name.
_MAX_NAME = 60
_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "torch", "polars", "dp-accounting", "cryptography")


def package_versions() -> dict[str, str]:
    """Return the versions of the installed packages that affect results."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def describe_model(model: Any) -> str:
    """Describe a trained model by its kind and size."""
    if hasattr(model, "encoder") and hasattr(model, "model"):
        return f"{describe_model(model.model)} on the embeddings of an encoder that was trained without labels"
    if hasattr(model, "members"):
        return "the mean of " + ", ".join(map(describe_model, model.members))
    if hasattr(model, "trees"):
        trees = f"{len(model.trees)} boosted trees"
        return trees if model.start is None else f"{describe_model(model.start)}, with {trees} added"
    if hasattr(model, "terms"):
        crosses = sum(len(term.columns) > 1 for term in model.terms)
        return f"additive model of {len(model.terms) - crosses} columns" + (
            f" and {crosses} crosses" if crosses else ""
        )
    for part in ("classifier", "regressor"):
        if hasattr(model, part):
            return type(getattr(model, part)).__name__
    if hasattr(model, "network"):
        size = sum(part.numel() for part in model.network.parameters())
        config = getattr(model.network, "config", {})
        name = config.get("backbone") or config.get("name") or type(model.network).__name__
        return f"{name}, a network with {size:,} parameters"
    return "linear model" if hasattr(model, "coefficients") else type(model).__name__


def origin_blocks(facts: dict[str, Any]) -> list[Block]:
    """Return the known facts about the origin of a model."""
    data, space, users = facts.get("data") or {}, facts.get("space") or {}, facts.get("users")
    lines = {
        "Data": data.get("name"),
        "Rows": None if data.get("rows") is None else f"{data['rows']:,}",
        "Users": f"{users['count']:,}, who own {users['rows']:,} rows of the training" if users else None,
        "Label": data.get("label"),
        "Numbers" if space.get("step") else "Classes": _describe_classes(
            space.get("classes") or [], "inferred" if facts.get("classes_inferred") else "declared", space.get("step")
        ),
        "Missing labels": "a public fact of their rows" if space.get("missing") == "public" else None,
        "Features": facts.get("features"),
        "Recipe": facts.get("recipe"),
        "Options": ", ".join(f"{name}={value}" for name, value in (facts.get("options") or {}).items()),
        "Model": facts.get("model"),
        "Encoder": f"trained without labels, {facts['encoder']}" if facts.get("encoder") else None,
        "Requested": _requested_privacy(facts),
        "Seed": None if facts.get("seed") is None else f"{facts['seed']}, for training; privacy noise has no seed",
        "Created": str(facts.get("created") or "").replace("T", " ").replace("+00:00", " UTC"),
        "labeldp": facts.get("version"),
        "Python": facts.get("python"),
        "Packages": ", ".join(f"{name} {number}" for name, number in (facts.get("packages") or {}).items()),
    }
    rows = tuple((name, str(value)) for name, value in lines.items() if value)
    return [TableBlock("Where this model comes from", ("What", "Value"), rows)]


def _describe_classes(classes: Sequence[Any], origin: str, step: float | None) -> str:
    if step:
        return f"{classes[0]:g} to {classes[-1]:g} in steps of {step:g}, {origin}"
    names = [
        truncate(str(name), _MAX_NAME)
        for name in classes[: _MAX_CLASSES if len("".join(map(str, classes[:_MAX_CLASSES]))) < _MAX_LETTERS else 3]
    ]
    text = ", ".join(names)
    rest = f" and {len(classes) - len(names):,} more" if len(classes) > len(names) else ""
    return f"{len(classes):,}, {origin}: {text}{rest}" if classes else ""


def _requested_privacy(facts: dict[str, Any]) -> str:
    if facts.get("epsilon") is None:
        return ""
    return f"epsilon {facts['epsilon']:g}" + (f", delta {facts['delta']:g}" if facts.get("delta") else "")
