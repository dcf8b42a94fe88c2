"""Run the steps of a recipe against a vault: answer its requests within the budget of the task."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labeldp.accounting.costs import Cost
from labeldp.accounting.losses import compose
from labeldp.core.errors import BudgetExceeded, LabelDPError
from labeldp.core.exact_real import as_fraction
from labeldp.learn.predictor import Predictor
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.release_plan import ReleasePlan, step_losses
from labeldp.recipes.registry import Recipe
from labeldp.recipes.request import Request, Reserve
from labeldp.recipes.task import RowMask, Task
from labeldp.releases.base import Release

if TYPE_CHECKING:
    pass

_ONE_SIDED_SHARE = 0.95

_MAX_GRID_VALUES = 2_000  # values of a range

_N_EFFECTS_SHOWN = 8  # effects that a report describes

_LARGE_EPSILON = 8.0  # whoever gave a label even odds can be sure of it to 99.97 %

Report = Callable[[str], None]


def run_steps(
    vault: Vault,
    task: Task,
    recipe: Recipe,
    options: Mapping[str, Any],
    report: Report,
    earlier_releases: list[Release],
    training_name: str = "",
) -> Sequence[Predictor]:
    """Answer a recipe's requests until it returns, and add new releases to the earlier ones of other variants.

    Args:
        vault: The vault of the training.
        task: What to learn, and how much it may cost.
        chosen: The recipe.
        options: Its options.
        report: Is called with what is being done.
        earlier: The releases of other variants, which are free; new ones are added.
        training: A name of the training, under which all variants reserve releases.

    Returns:
        The models.

    Raises:
        BudgetExceeded: The budget cannot pay for the training to its end, or a reserved step was drawn otherwise.
        LabelDPError: The recipe asks for more than it may.
    """
    steps, releases = recipe.steps(task, **options), list[Release]()
    plan: ReleasePlan | None = None
    reply: Any = None
    while True:
        report("training" if releases else "preparing")
        try:
            request = steps.send(reply)
        except StopIteration as done:
            return done.value if isinstance(done.value, list) else [done.value]
        report("releasing")
        if not releases and plan is None and task.encoder is not None:
            task.encoder.check_shape(task.features)  # a learner would find out after the charge
        is_first = not releases and plan is None and not earlier_releases
        if isinstance(request, Reserve):
            if plan is not None and plan.n_remaining:
                raise LabelDPError(
                    f"The recipe {recipe.name!r} reserves again before it drew all steps: a mistake in it."
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
                    f"The recipe {recipe.name!r} asks for some rows of a reserved step: a mistake in it."
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
    vault: Vault, task: Task, recipe: Recipe, request: Reserve, releases: Sequence[Release], name: str, is_first: bool
) -> ReleasePlan | None:
    """Pay for the steps of a recipe; None where users own several labels, whose losses a step may not say.

    A rehearsal on some rows decides as the training will.
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


def _draw_reserved(plan: ReleasePlan, request: Request) -> Release:
    try:
        return plan.release(request.mechanism, derived_from=request.derived_from)
    except BudgetExceeded:
        raise BudgetExceeded(
            "This step of the training was reserved and drawn before, with another request. Repeat the earlier "
            "training with all of its settings, or take another seed, which is charged anew."
        ) from None


def _overspending_error(recipe: Recipe) -> LabelDPError:
    return LabelDPError(f"The recipe {recipe.name!r} asks for more than it was given: a mistake in the recipe.")


def name_training(task: Task, recipe: Recipe, options: Mapping[str, Any]) -> str:
    """Name a training in the ledger by what the user chose and what is written alike in every process."""
    plain = {name: value for name, value in sorted(options.items()) if type(value) in (bool, int, float, str)}
    return f"{recipe.name} seed {task.seed} {json.dumps(plain) if plain else ''}".strip()


def _check_remaining_budget(vault: Vault, task: Task, row_mask: RowMask, is_paid: bool) -> None:
    """Refuse before the first release what could not be paid to the end, unless it is a run that goes on."""
    epsilon, delta = vault.remaining(row_mask)
    if epsilon < task.epsilon * (1 - 1e-9) and not is_paid:
        raise BudgetExceeded(
            f"This training costs epsilon {task.epsilon:g} in all, and the budget has epsilon {epsilon:.6g} and delta "
            f"{delta:.3g} left: ask for less, or raise the budget."
        )


def _scale_to_task(
    vault: Vault, task: Task, releases: Sequence[Release], requested: Mechanism, row_mask: RowMask
) -> Mechanism | None:
    """Turn what a recipe asks for a unit into what its labels get, within what the task has left; None without such.

    The labels of a user share epsilon. Where delta is left over, many labels can share it to more effect. What is left
    of the budget has no say: a run that goes on must ask for what it asked for before.
    """
    for delta in dict.fromkeys((min(task.delta, vault.budget.delta), 0.0)):
        mechanism = vault.scaled_to_unit(requested, row_mask, delta)
        composed = vault.guarantee_of(releases, mechanism, row_mask)
        is_private = math.isfinite(composed.epsilon)  # what is not was switched on by name
        if not is_private or (composed.epsilon <= task.epsilon and composed.delta <= task.delta):
            return mechanism
    return None
