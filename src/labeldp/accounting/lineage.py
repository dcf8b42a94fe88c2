"""Provenance: the uses of labels behind a model or a derived release, and their joint guarantee.

Only this module creates provenances: `Provenance.of` combines those of all inputs, and `Provenance.public` is that of
a result without labels. Models take a `Provenance`, never a guarantee or a lineage, so no constructor can state a
stronger guarantee than its inputs have.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, cast
from uuid import uuid4

from labeldp.accounting.costs import Cost, LabelUse, joint_cost
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee


class HasLineage(Protocol):
    """Anything that may depend on labels: a release, a model, or a provenance itself."""

    @property
    def lineage(self) -> tuple[LabelUse, ...]:
        """The uses of labels."""

    @property
    def guarantee(self) -> Guarantee | None:
        """The joint guarantee of these uses; None if there are none."""


@dataclass(frozen=True)
class Provenance:
    """The uses of labels behind a model, and their joint guarantee; None and no use if there was no label.

    Call `Provenance.of(*inputs)` or `Provenance.public()`, never the constructor.
    """

    guarantee: Guarantee | None
    lineage: tuple[LabelUse, ...]

    @classmethod
    def public(cls) -> "Provenance":
        """Return the provenance of a result that depends on no label."""
        return cls(None, ())

    @classmethod
    def of(cls, *sources: HasLineage | None) -> "Provenance":
        """Combine the provenance of all inputs.

        Uses that several inputs share count once. Uses of one unit add; for labels and users, uses on disjoint rows
        compose in parallel. An input with a guarantee but no named use counts as one use of all rows.

        Args:
            sources: Releases, models or provenances; None is skipped.

        Returns:
            A provenance with every use of every source. Its guarantee is no stronger than that of any source.

        Raises:
            InputError: Sources protect different units, whose costs do not add up.
        """
        inputs = {id(each): each for each in map(cls._of_source, sources) if each.uses_labels}
        first, *others = inputs.values() or [cls.public()]
        guarantees = [each.guarantee for each in inputs.values() if each.guarantee is not None]
        if len({each.unit for each in guarantees}) > 1:
            raise InputError("These protect different units, so that their costs do not add up: use one vault for all.")
        if all(each.lineage and set(each.lineage) <= set(first.lineage) for each in others):
            return first
        uses = tuple(dict.fromkeys(use for each in inputs.values() for use in each.named_uses()))
        return cls(_joint_guarantee(uses, guarantees), uses)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Provenance":
        """Read what `to_json` wrote."""
        guarantee = Guarantee(**data["guarantee"]) if data["guarantee"] else None
        return cls(guarantee, tuple(LabelUse.from_json(use) for use in data["lineage"]))

    def to_json(self) -> dict[str, Any]:
        """Describe the provenance; `from_json` reads it back."""
        guarantee = self.guarantee.to_json() if self.guarantee else None
        return {"guarantee": guarantee, "lineage": [use.to_json() for use in self.lineage]}

    @property
    def uses_labels(self) -> bool:
        """Whether any label was used."""
        return bool(self.lineage) or self.guarantee is not None

    @classmethod
    def _of_source(cls, source: HasLineage | None) -> "Provenance":
        if source is None:
            return cls.public()
        provenance = source if isinstance(source, Provenance) else getattr(source, "provenance", None)
        return provenance if isinstance(provenance, Provenance) else cls(source.guarantee, tuple(source.lineage))

    def named_uses(self) -> tuple[LabelUse, ...]:
        """Return the uses; a guarantee without named uses becomes one use of all rows, with a new name."""
        if self.lineage or self.guarantee is None:
            return self.lineage
        epsilon, delta = self.guarantee.epsilon, Fraction(self.guarantee.delta)
        cost = Cost(Fraction(epsilon) if math.isfinite(epsilon) else epsilon, delta)
        name = f"unnamed {uuid4().hex}"
        return (LabelUse(name, cost, None, 0, name),)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Provenance":
        return self  # a copied network has this same object, so that it counts once


class HasProvenance:
    """Gives a model `guarantee` and `lineage` from its `provenance`."""

    provenance: Provenance

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee for every label that was used; None if none was."""
        return self.provenance.guarantee

    @property
    def lineage(self) -> tuple[LabelUse, ...]:
        """The uses of labels."""
        return self.provenance.lineage


def _joint_guarantee(uses: tuple[LabelUse, ...], guarantees: list[Guarantee]) -> Guarantee | None:
    if not guarantees:
        return None
    unit = guarantees[0].unit
    is_parallel = unit != "record"  # releases about other rows can depend on a whole record
    cost = joint_cost(uses, parallel=is_parallel)
    epsilon = max(float(cost.epsilon), *(each.epsilon for each in guarantees))
    delta = max(min(float(cost.delta), 1.0), *(each.delta for each in guarantees))
    trust = "local" if all(each.trust == "local" for each in guarantees) else "central"
    derivation = f"{len(uses)} uses of labels, added up by {unit if is_parallel else 'use'}"
    return Guarantee(epsilon, delta, unit, trust, derivation)  # type: ignore[arg-type]


def check_sources(derived_from: Any) -> list[HasLineage]:
    """Return the releases and models from which something was derived, without those that used no label.

    Args:
        derived_from: One release or model, or a list or tuple of them.

    Raises:
        InputError: One of them has no lineage or no guarantee.
    """
    sources = derived_from if isinstance(derived_from, list | tuple) else [derived_from]
    if not all(hasattr(each, "lineage") and hasattr(each, "guarantee") for each in sources):
        raise InputError("derived_from takes the releases and models from which rows or arrays were computed.")
    return [each for each in sources if each.guarantee is not None]


def source_guarantee(source: HasLineage) -> Guarantee:
    """Return the guarantee of a source that `check_sources` has returned: it always has one."""
    return cast(Guarantee, source.guarantee)


def combine_lineage(sources: Sequence[HasLineage], *own_uses: LabelUse) -> tuple[LabelUse, ...]:
    """Return all uses of labels behind some sources, each once, followed by own uses."""
    return tuple(dict.fromkeys([*(use for source in sources for use in source.lineage), *own_uses]))
