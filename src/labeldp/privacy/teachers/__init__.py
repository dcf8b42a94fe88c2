"""Teachers trained on secret labels, their votes, and the privacy accounting of their votes."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.privacy.teachers.heads import Heads as Heads
    from labeldp.privacy.teachers.networks import Networks as Networks
    from labeldp.privacy.teachers.teacher_votes import TeacherEnsemble as TeacherEnsemble
    from labeldp.privacy.teachers.teacher_votes import TeacherVotes as TeacherVotes

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.privacy.teachers",
    {
        "heads": ["Heads"],
        "networks": ["Networks"],
        "teacher_votes": ["TeacherEnsemble", "TeacherVotes"],
    },
)
