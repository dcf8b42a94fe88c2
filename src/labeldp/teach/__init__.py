"""Teachers that vote on what they learned from secret labels, and what their answers cost."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import exports

if TYPE_CHECKING:
    from labeldp.teach.heads import Heads as Heads
    from labeldp.teach.networks import Networks as Networks
    from labeldp.teach.votes import SealedVotes as SealedVotes
    from labeldp.teach.votes import TeacherVotes as TeacherVotes

__all__, __getattr__, __dir__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.teach",
    {
        "heads": ["Heads"],
        "networks": ["Networks"],
        "votes": ["SealedVotes", "TeacherVotes"],
    },
)
