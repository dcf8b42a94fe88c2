"""One private training, whose result is a folder that another person can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labeldp.core.atomic_files import written_whole
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes import runner as recipes
from labeldp.recipes.progress import Progress
from labeldp.runs.checkpoints import checkpoints_of
from labeldp.runs.config import Plan
from labeldp.runs.feature_files import doubts
from labeldp.runs.record import describe_run, write_run


def train(
    table: SecretTable,
    vault: Vault,
    plan: Plan,
    out: Path,
    report: Callable[[str], None] = lambda what: None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train as planned and write the run folder `out`; return what it says.

    What is being done is said to `report`, and `progress` counts the steps of recipes that plan them.

    A training of networks that is stopped leaves its checkpoints beside `out`, and the same request goes on from there.
    """
    rows = vault.capped(plan.labels_per_user, plan.seed)
    with written_whole(out) as folder, checkpoints_of(out) as checkpoints:
        intake, features, public = plan.read(table, vault.rows)
        task = plan.task(features, table.space, rows, checkpoints, public=public, progress=progress or Progress())
        doubted = [] if public is not None else doubts(table, features)
        for doubt in doubted:  # before anything is spent on columns that were read in another way than they are meant
            report(f"Note: {doubt}")
        encoder = task.encoder and task.encoder.digest()[:16]

        def write(place: Path, trained: recipes.TrainingResult, vault: Vault) -> dict[str, Any]:
            facts = describe_run(table, vault, plan, trained)
            facts |= {"encoder": encoder, "warnings": [*facts["warnings"], *doubted]}
            write_run(place, facts, intake, trained, vault)
            return facts

        def rehearse(trained: recipes.TrainingResult, made_up: Vault) -> None:
            with TemporaryDirectory() as place:
                write(Path(place) / "run", trained, made_up)

        trained = recipes.train(vault, task, plan.recipe, plan.options, report=report, rehearsal_hook=rehearse)
        return write(folder, trained, vault)
