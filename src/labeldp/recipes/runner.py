"""Running the steps of a recipe against a vault, within the budget of the task."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from labeldp.accounting.costs import Cost
from labeldp.accounting.losses import compose
from labeldp.core.errors import BudgetExceeded, LabelDPError
from labeldp.core.exact_real import as_fraction
from labeldp.learn.predictor import Predictor
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault.interface import PlannedReleases, ReleasingVault
from labeldp.privacy.vault.release_plan import step_losses
from labeldp.recipes.registry import Recipe
from labeldp.recipes.request import Request, Reserve
from labeldp.recipes.task import RowMask, Task
from labeldp.releases.base import Release

# Is called with the phase of a training: "preparing", "releasing" or "training", for example.
ReportPhase = Callable[[str], None]


def run_steps(
    vault: ReleasingVault,
    task: Task,
    recipe: Recipe,
    options: Mapping[str, Any],
    report: ReportPhase,
    earlier_releases: list[Release],
    training_name: str = "",
) -> Sequence[Predictor]:
    """Answer the requests of a recipe until it returns its models.

    Args:
        vault: The vault of the training.
        task: The task. Its epsilon and delta bound the composed cost of all releases.
        recipe: The recipe.
        options: The recipe's options.
        report: Is called with each phase of the training.
        earlier_releases: The releases of other variants, which are free. New releases are appended.
        training_name: The name under which all variants of the training reserve releases.

    Returns:
        The models.

    Raises:
        BudgetExceeded: The budget cannot pay for the whole training, or a reserved step was drawn with another request.
        LabelDPError: The recipe requests more than the task's epsilon or delta.
    """
    steps, releases = recipe.steps(task, **options), list[Release]()
    plan: PlannedReleases | None = None
    reply: Any = None
    while True:
        report("training" if releases else "preparing")
        try:
            request = steps.send(reply)
        except StopIteration as done:
            return done.value if isinstance(done.value, list) else [done.value]
        report("releasing")
        if not releases and plan is None and task.encoder is not None:
            task.encoder.check_shape(task.features)  # a learner would fail only after the charge
        is_first = not releases and plan is None and not earlier_releases
        if isinstance(request, Reserve):
            if plan is not None and plan.n_remaining:
                raise LabelDPError(
                    f"The recipe {recipe.name!r} reserves again before it drew all steps: a mistake in the recipe."
                )
            plan = _reserve_steps(
                vault, task, recipe, request, releases, f"{training_name} {request.name}".strip(), is_first
            )
            reply = plan is not None
            continue
        row_mask = task.row_mask if request.row_mask is None else request.row_mask & task.row_mask
        if plan is not None and plan.n_remaining:
            if not np.array_equal(row_mask, task.row_mask):
                raise LabelDPError(
                    f"The recipe {recipe.name!r} requests some rows of a reserved step: a mistake in the recipe."
                )
            reply = _draw_reserved(plan, request)
        else:
            mechanism = _scale_to_task(vault, task, releases, request.mechanism, row_mask)
            if mechanism is None:
                raise _overspending_error(recipe)
            if is_first:
                _check_remaining_budget(vault, task, row_mask, vault.was_released(mechanism, row_mask))
            reply = vault.release(mechanism, row_selection=row_mask, derived_from=request.derived_from)
        releases.append(reply)
        if reply.entry not in {release.entry for release in earlier_releases}:
            earlier_releases.append(reply)


def _reserve_steps(
    vault: ReleasingVault,
    task: Task,
    recipe: Recipe,
    request: Reserve,
    releases: Sequence[Release],
    name: str,
    is_first: bool,
) -> PlannedReleases | None:
    """Reserve the steps of a recipe.

    Returns:
        The plan of the releases. None if users own several labels, for which the loss of a step is not known. A
        rehearsal on some rows decides by the full task, as the training does.
    """
    if task.full_task.labels_per_user > 1:
        return None
    epsilon, spent = compose(step_losses(request.steps), request.delta), Cost()
    if releases:
        composed = vault.guarantee_of(releases)
        spent = (
            Cost(as_fraction(composed.epsilon), as_fraction(composed.delta))
            if math.isfinite(composed.epsilon)
            else Cost(math.inf)
        )
    if (
        not math.isfinite(epsilon)
        or spent.epsilon + as_fraction(epsilon) > as_fraction(task.epsilon)
        or spent.delta + as_fraction(request.delta) > as_fraction(task.delta)
    ):
        raise _overspending_error(recipe)
    plan_options: dict[str, Any] = {"row_selection": task.row_mask, "delta": request.delta, "name": name}
    if is_first:
        _check_remaining_budget(vault, task, task.row_mask, vault.was_planned(*request.steps, **plan_options))
    return vault.plan(*request.steps, **plan_options)


def _draw_reserved(plan: PlannedReleases, request: Request) -> Release:
    try:
        return plan.release(request.mechanism, derived_from=request.derived_from)
    except BudgetExceeded:
        raise BudgetExceeded(
            "This step of the training was reserved and drawn before, with another request. Repeat the earlier "
            "training with all of its settings, or take another seed, which is charged anew."
        ) from None


def _overspending_error(recipe: Recipe) -> LabelDPError:
    return LabelDPError(
        f"The recipe {recipe.name!r} requests more than the epsilon and delta of its task: a mistake in the recipe."
    )


def name_training(task: Task, recipe: Recipe, options: Mapping[str, Any]) -> str:
    """Return the name of a training in the ledger: recipe, seed and plain options, the same in every process."""
    plain = {name: value for name, value in sorted(options.items()) if type(value) in (bool, int, float, str)}
    return f"{recipe.name} seed {task.seed} {json.dumps(plain) if plain else ''}".strip()


def _check_remaining_budget(vault: ReleasingVault, task: Task, row_mask: RowMask, is_paid: bool) -> None:
    """Refuse a training that the budget cannot pay to the end, unless its first release `is_paid` already."""
    epsilon, delta = vault.remaining(row_mask)
    if epsilon < task.epsilon * (1 - 1e-9) and not is_paid:
        raise BudgetExceeded(
            f"This training costs epsilon {task.epsilon:g} in all, and the budget has epsilon {epsilon:.6g} and delta "
            f"{delta:.3g} left: lower epsilon, or raise the budget."
        )


def _scale_to_task(
    vault: ReleasingVault, task: Task, releases: Sequence[Release], requested: Mechanism, row_mask: RowMask
) -> Mechanism | None:
    """Scale a mechanism from one privacy unit to all labels of the unit, within the rest of the task's budget.

    The labels of a user share epsilon. Unused delta allows a better composition over many labels. The rest of the
    vault's budget must not matter: an interrupted run that continues must repeat its requests.

    Returns:
        The mechanism, or None if none fits into the task's epsilon and delta.
    """
    for delta in dict.fromkeys((min(task.delta, vault.budget.delta), 0.0)):
        mechanism = vault.scaled_to_unit(requested, row_mask, delta)
        composed = vault.guarantee_of(releases, mechanism, row_mask)
        is_private = math.isfinite(composed.epsilon)  # others need `allow_unproven`
        if not is_private or (composed.epsilon <= task.epsilon and composed.delta <= task.delta):
            return mechanism
    return None
