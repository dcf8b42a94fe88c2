"""Provenance: which uses of labels a model or a derived release rests on, and what these guarantee together.

Every model gets its provenance here and nowhere else: `Provenance.of` combines that of all inputs, and
`Provenance.public` states that there was none. Models take a `Provenance`, never a guarantee or a lineage, so no
constructor can state less than its inputs cost.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol
from uuid import uuid4

from labeldp.accounting.costs import Cost, LabelUse, joint_cost
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee


class HasLineage(Protocol):
    """Anything that may rest on labels: a release, a model, or a provenance itself."""

    @property
    def lineage(self) -> tuple[LabelUse, ...]:
        """The uses of labels."""

    @property
    def guarantee(self) -> Guarantee | None:
        """What these uses guarantee together; None without any."""


@dataclass(frozen=True)
class Provenance:
    """The uses of labels behind a model, and their joint guarantee; None and no use if it saw no labels.

    Call `Provenance.of(*inputs)` or `Provenance.public()`, never the constructor.
    """

    guarantee: Guarantee | None
    lineage: tuple[LabelUse, ...]

    @classmethod
    def public(cls) -> "Provenance":
        """Return the provenance of something that was made without labels."""
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
        uses = tuple(dict.fromkeys(use for each in inputs.values() for use in each._named_uses()))
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

    def _named_uses(self) -> tuple[LabelUse, ...]:
        """Return the uses; a guarantee that names none becomes one of its own."""
        if self.lineage or self.guarantee is None:
            return self.lineage
        epsilon, delta = self.guarantee.epsilon, Fraction(self.guarantee.delta)
        cost = Cost(Fraction(epsilon) if math.isfinite(epsilon) else epsilon, delta)
        name = f"unnamed {uuid4().hex}"
        return (LabelUse(name, cost, None, 0, name),)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Provenance":
        return self  # a copied network keeps this very object, so that it counts once


class HasProvenance:
    """Gives a model `guarantee` and `lineage` from its `provenance`."""

    provenance: Provenance

    @property
    def guarantee(self) -> Guarantee | None:
        """What holds for every label that was used; None if none was."""
        return self.provenance.guarantee

    @property
    def lineage(self) -> tuple[LabelUse, ...]:
        """The uses of labels."""
        return self.provenance.lineage


def _joint_guarantee(uses: tuple[LabelUse, ...], guarantees: list[Guarantee]) -> Guarantee | None:
    if not guarantees:
        return None
    unit = guarantees[0].unit
    is_parallel = unit != "record"  # about a whole record, other rows speak too
    cost = joint_cost(uses, parallel=is_parallel)
    epsilon = max(float(cost.epsilon), *(each.epsilon for each in guarantees))
    delta = max(min(float(cost.delta), 1.0), *(each.delta for each in guarantees))
    trust = "local" if all(each.trust == "local" for each in guarantees) else "central"
    derivation = f"{len(uses)} uses of labels, added up by {unit if is_parallel else 'use'}"
    return Guarantee(epsilon, delta, unit, trust, derivation)  # type: ignore[arg-type]
