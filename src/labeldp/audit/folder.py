"""The audit of a run folder: what its recipe would tell about labels, found without a look at the real ones.

Training again on the real labels would be a new release, so that is not done. The features are those of the run; the
labels are drawn from the released model, which is public as far as labels go; some are replaced by canaries. The run's
recipe, with its options, epsilon and delta, trains on these in a throwaway vault. So what is found is about
the recipe at this epsilon on rows like these, and nothing here can spend from the ledger of the data.
"""

import hashlib
import json
import math
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import capped_rows
from labeldp.audit.bounds import error_rate
from labeldp.audit.canaries import MOST, SURE, Game, Played, canary_game, deal, play, rows_to_train
from labeldp.audit.inference import label_inference
from labeldp.audit.one_run import one_run
from labeldp.core import unproven
from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.core.guarantee import plain_number
from labeldp.core.label_space import LabelSpace
from labeldp.core.version import __version__
from labeldp.data.files import TableFile
from labeldp.learn.model import Model
from labeldp.learn.predictor import load_predictor
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes.task import Task
from labeldp.runs.config import Plan
from labeldp.runs.feature_files import read_columns
from labeldp.runs.record import intake_of, read_report

RESULT = "audit.json"
_FORMAT = 1


@dataclass(frozen=True)
class Request:
    """What to audit with: a run's own settings, where they are not given."""

    canaries: int | None = None
    trainings: int = 1
    confidence: float = 0.95
    encoder: Path | None = None
    public: Path | None = None
    device: str = "auto"
    progress: bool = False

    def __post_init__(self) -> None:
        error_rate(self.confidence)
        for name in ("canaries", "trainings"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a whole number from 1.")


def audit_run(
    run: Path, data: Path, request: Request | None = None, report: Callable[[str], None] = lambda what: None
) -> dict[str, Any]:
    """Audit a run folder and write the result into it, as `audit.json`; `data` is the table that it was trained on.

    Only features are read of `data`. An audit that is stopped leaves its checkpoints in the run folder, and the
    same request goes on from there.
    """
    request = request or Request()
    facts = read_report(run)
    if (run / RESULT).exists():
        raise InputError(f"{run / RESULT} holds an audit of this run: remove it to audit again.")
    if (facts.get("space") or {}).get("step") is not None:
        raise InputError(
            "Canaries are for classes, and this run learnt numbers: audit its mechanisms, for example by "
            "labeldp audit --mechanism rr-on-bins --epsilon 1."
        )
    features, plan, public = _reading(run, data, facts, request)
    records = _protects_records(facts)
    if records and public is not None:  # what is found on secret records would tell of them
        features, public = (public.select(np.arange(first, len(public), 2)) for first in (0, 1))
    owners = None if records else _owners(data, facts)
    rows = capped_rows(owners, None, len(features), plan.labels_per_user, plan.seed)
    released = load_predictor(run / "model", request.device)
    space = LabelSpace.from_json(facts["space"])
    chances = np.asarray(released.predict_proba(features), np.float64)
    if plan.recipe == "immutable":  # whoever made the run switched it on, and here it sees no real label
        unproven.allow_unproven("immutable")
    folder = _kept(run, facts, request)
    started = json.loads((folder / "request.json").read_text())
    games, played = list[Game](), list[Played]()
    wanted = request.canaries, _most(facts, request)
    for number in range(request.trainings):
        report(f"training {number + 1} of {request.trainings}")
        own = folder / str(number)
        own.mkdir(exist_ok=True)
        task = plan.task(features, space, rows, own, public=public, users=owners)
        games.append(_game(task, plan.recipe, chances, [started["seed"], number], wanted))
        played.append(_play(games[-1], task, plan, chances, own, report))
    report("counting")
    result = _result(facts, request, games, played, chances, rows_to_train(task, plan.recipe))
    with written_whole(run / RESULT) as partial:
        partial.write_text(json.dumps(result, indent=2) + "\n")
    shutil.rmtree(folder)
    return result


def _reading(run: Path, data: Path, facts: dict[str, Any], request: Request) -> tuple[Any, Plan, Any]:
    """Read the features as the run did, and its plan from what the run says of itself."""
    intake = intake_of(run)
    features = intake(read_columns(TableFile(data), list(intake.columns), intake.texts))
    if len(features) != facts["data"]["rows"]:
        raise InputError(
            f"{data} has {len(features)} rows and the run was trained on {facts['data']['rows']}: give the table that "
            "it was trained on."
        )
    public, asked = None, facts.get("plan", {})  # what the training was given, where the run keeps that
    if request.public is not None:
        public = intake(read_columns(TableFile(request.public), list(intake.columns), intake.texts))
    elif asked.get("public") or _protects_records(facts):
        raise InputError("The teachers of this run voted on public rows: name their table by --public.")
    _check_encoder(request.encoder, facts.get("encoder"))
    how: dict[str, Any] = {"flip": intake.flip, "device": request.device, "progress": request.progress}
    how |= {"encoder": request.encoder, "seed": facts["seed"], "public": request.public}
    how |= {"epochs": asked.get("epochs"), "model": asked.get("model", "auto")}
    how |= {"choose_by": asked.get("choose_by", "auto")}
    how |= {"labels_per_user": (facts.get("users") or {}).get("labels_per_user")}
    plan = Plan(facts["epsilon"], facts["delta"], facts["recipe"], facts["options"], intake.kind, **how)
    plan.check()
    return features, plan, public


def _check_encoder(given: Path | None, used: str | None) -> None:
    """Refuse another encoder than that of the training: its audit would be of another training."""
    found = None if given is None else Model.load(given, "cpu").digest()[:16]
    if found != used:
        has = "no encoder: leave --encoder out" if used is None else f"encoder {used}: name it by --encoder"
        raise InputError(f"The training of this run began from {has}.")


def _protects_records(facts: dict[str, Any]) -> bool:
    return "record" in (facts.get("model_unit"), facts["guarantee"].get("unit"))


def _owners(data: Path, facts: dict[str, Any]) -> NDArray[np.int64] | None:
    """Read who owns which row, a public fact, where the run protects users."""
    if not facts.get("users"):
        return None
    space = LabelSpace.from_json(facts["space"])
    table = SecretTable(TableFile(data), facts["data"]["label"], space, users=facts["users"]["column"])
    table.file.column_type(facts["users"]["column"])
    return table.owners()


def _kept(run: Path, facts: dict[str, Any], request: Request) -> Path:
    """Return the folder of this request's checkpoints, with the seed of its canaries, drawn when it began."""
    what = [facts["created"], request.canaries, _most(facts, request), request.trainings]
    what += [str(request.encoder), str(request.public)]
    folder = run / f".audit.{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]}.checkpoints"
    if not (folder / "request.json").is_file():
        try:
            folder.mkdir(exist_ok=True)
            with written_whole(folder / "request.json") as partial:
                partial.write_text(json.dumps({"seed": secrets.randbits(64)}))
        except OSError as problem:
            raise InputError(f"{run} cannot be written to: {problem.strerror or problem}.") from None
    return folder


def _most(facts: dict[str, Any], request: Request) -> int:
    """Return how many canaries a training may have: delta for each of them must stay far below the error rate."""
    delta = float(facts["guarantee"]["delta"])
    return MOST if not delta else min(MOST, int(error_rate(request.confidence) / (4 * delta * request.trainings)))


def _game(
    task: Task, recipe: str, chances: NDArray[np.float64], seed: list[int], wanted: tuple[int | None, int]
) -> Game:
    """Draw labels from the released model, and canaries among the rows that are trained on."""
    generator = np.random.default_rng(seed)
    edges = chances.cumsum(axis=1)
    codes = (generator.random((len(chances), 1)) * edges[:, -1:] >= edges[:, :-1]).sum(axis=1)
    return deal(codes, rows_to_train(task, recipe), chances.shape[1], generator, *wanted, task.users)


def _play(
    game: Game, task: Task, plan: Plan, chances: NDArray[np.float64], own: Path, report: Callable[[str], None]
) -> Played:
    """Train, or read what a finished training told."""
    done = own / "played.npz"
    if done.is_file():
        with np.load(done) as kept:
            scores = {name.removeprefix("score "): kept[name] for name in kept.files if name.startswith("score ")}
            evidence = kept["evidence"] if "evidence" in kept.files else None
            return Played(scores, kept["sureness"], kept["chances"], evidence)
    ledger = Ledger(own / "throwaway.ledger")  # so that an interrupted training goes on with what was drawn
    played = play(game, task, plan.recipe, plan.options, reference=chances, ledger=ledger, report=report)
    arrays = {f"score {name}": values for name, values in played.scores.items()}
    facts = {"sureness": played.sureness, "chances": played.chances}
    facts |= {} if played.evidence is None else {"evidence": played.evidence}
    with written_whole(done) as partial, partial.open("wb") as stream:
        np.savez(stream, **arrays, **facts)  # type: ignore[arg-type]
    return played


def _result(
    facts: dict[str, Any],
    request: Request,
    games: list[Game],
    played: list[Played],
    chances: NDArray[np.float64],
    trained: NDArray[np.bool_],
) -> dict[str, Any]:
    """Count the guesses of all trainings together: independent trainings are one game with as many coins."""
    epsilon, delta = float(facts["guarantee"]["epsilon"]), float(facts["guarantee"]["delta"])
    coins = np.concatenate([game.coins for game in games])
    views = {name: np.concatenate([each.scores[name] for each in played]) for name in played[0].scores}
    bound = one_run(views, coins, delta, request.confidence)
    sureness = np.concatenate([each.sureness for each in played])
    guessed = canary_game(views[SURE], sureness, coins, request.confidence)
    others = trained.copy()
    others[games[-1].rows] = False
    last = played[-1]
    own = None if last.evidence is None else last.evidence[others]
    law = games[-1].codes[others], chances[others], last.chances[others]
    alone = facts["users"]["label"] if facts.get("users") else facts["guarantee"]  # a single label may lose less
    limits = float(alone["epsilon"]), float(alone["delta"])
    inferred = label_inference(*law, *limits, request.confidence, own)
    claimed = epsilon if math.isfinite(epsilon) else float(facts["epsilon"])
    common = {"confidence": request.confidence, "stated_epsilon": plain_number(epsilon)}
    return {
        "format": _FORMAT,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": facts["recipe"],
        "stated": {"epsilon": plain_number(epsilon), "delta": delta, "claimed": claimed},
        "trainings": request.trainings,
        "rows": len(chances),
        "lower_bound": bound.lower,
        "confidence": request.confidence,
        "holds": bound.lower <= claimed,
        "audits": [
            {"kind": "one run", "lower_bound": bound.lower, **common, **_without(bound.to_json(), "lower")},
            {"kind": "canary game", **common, **guessed.to_json()},
            {"kind": "label inference", **common, **inferred.to_json()},
        ],
        "notes": [*_NOTES, *[_OF_USERS] * bool(facts.get("users")), *[_OF_RECORDS] * _protects_records(facts)],
    }


def _without(facts: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key != name}


_OF_RECORDS = "Records are secret: half of the public rows stood in for them, and teachers voted on the other half."
_OF_USERS = "A canary is a user: one coin decides all of their labels that take part."
_NOTES = [
    "Labels were drawn from the released model, and canaries replaced some: no real label was used.",
    "A lower bound holds but for an error rate of 1 - confidence; nothing here bounds epsilon from above.",
    "The intervals of the canary game and of label inference treat guesses on one model as independent.",
]
