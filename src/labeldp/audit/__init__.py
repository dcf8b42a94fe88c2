"""Audits of stated guarantees: lower bounds on epsilon, from draws of a mechanism or from a training with canaries."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.audit.mechanism import MechanismAudit as MechanismAudit
    from labeldp.audit.mechanism import audit_mechanism as audit_mechanism
    from labeldp.audit.neighbor_pairs import NeighborPair as NeighborPair
    from labeldp.audit.neighbor_pairs import pair_of_labels as pair_of_labels
    from labeldp.audit.neighbor_pairs import pair_of_rows as pair_of_rows
    from labeldp.audit.neighbor_pairs import pair_of_votes as pair_of_votes
    from labeldp.audit.neighbor_pairs import worst_neighbor_pairs as worst_neighbor_pairs
    from labeldp.audit.run_audit import audit_run as audit_run

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.audit",
    {
        "run_audit": ["audit_run"],
        "mechanism": ["MechanismAudit", "audit_mechanism"],
        "neighbor_pairs": ["NeighborPair", "pair_of_labels", "pair_of_rows", "pair_of_votes", "worst_neighbor_pairs"],
    },
)
