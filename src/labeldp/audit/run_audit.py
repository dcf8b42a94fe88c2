"""The audit of a run folder, without the real labels.

Training again on the real labels would be a new release, so the audit does not do that. The features are those of the
run. The labels are drawn from the released model, which already has the guarantee of the run, and canaries replace
some of them. The run's recipe, with its options, epsilon and delta, trains on these labels in a temporary vault. So the
result is about the recipe at this epsilon on such rows, and the audit cannot spend from the ledger of the data.
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

from labeldp.accounting.costs import cap_labels_per_user
from labeldp.audit.bounds import error_rate
from labeldp.audit.canaries import (
    CONFIDENT_VIEW,
    MAX_CANARIES,
    CanaryScores,
    CanarySet,
    measure_canary_game,
    plant_canaries,
    select_training_rows,
    train_and_score,
)
from labeldp.audit.inference import measure_label_inference
from labeldp.audit.one_run import one_run
from labeldp.core import unproven
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.guarantee import json_number
from labeldp.core.label_space import LabelSpace
from labeldp.core.version import __version__
from labeldp.data.files import TableFile
from labeldp.learn.model import Model
from labeldp.learn.predictor import load_predictor
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes.task import Task
from labeldp.runs.config import TrainConfig
from labeldp.runs.feature_files import read_columns
from labeldp.runs.record import load_reader, read_record

RESULT_FILE = "audit.json"
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class AuditConfig:
    """Settings of an audit."""

    canaries: int | None = None  # the number of canaries of a training; None for a fifth of the rows, up to a maximum
    trainings: int = 1
    confidence: float = 0.95
    encoder: Path | None = None  # the encoder of the run
    public: Path | None = None  # the table of the public rows of the run
    device: str = "auto"
    progress: bool = False

    def __post_init__(self) -> None:
        error_rate(self.confidence)
        for name in ("canaries", "trainings"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a whole number from 1.")


def audit_run(
    run: Path, data: Path, config: AuditConfig | None = None, report: Callable[[str], None] = lambda message: None
) -> dict[str, Any]:
    """Audit a run folder and write the result into it, as `audit.json`.

    A stopped audit leaves its checkpoints in the run folder, and the same request continues from there.

    Args:
        run: The run folder.
        data: The table that the run was trained on. Only its features and users are read.
        config: The settings; None for the defaults.
        report: Is called with each phase of the audit.

    Returns:
        The result, as it is written.

    Raises:
        InputError: The run cannot be audited, or the settings do not fit it.
    """
    config = config or AuditConfig()
    facts = read_record(run)
    if (run / RESULT_FILE).exists():
        raise InputError(f"{run / RESULT_FILE} holds an audit of this run: remove it to audit again.")
    if (facts.get("space") or {}).get("step") is not None:
        raise InputError(
            "Canaries are for classes, and this run is a regression: audit its mechanism, for example rr-on-bins."
        )
    features, train_config, public = _read_inputs(run, data, facts, config)
    protects_records = _protects_records(facts)
    if protects_records and public is not None:  # a result on secret records would be a release about them
        features, public = (public.select(np.arange(start, len(public), 2)) for start in (0, 1))
    users = None if protects_records else _read_users(data, facts)
    row_mask = cap_labels_per_user(users, None, len(features), train_config.labels_per_user, train_config.seed)
    model = load_predictor(run / "model", config.device)
    space = LabelSpace.from_json(facts["space"])
    probabilities = np.asarray(model.predict_proba(features), np.float64)
    if train_config.recipe == "immutable":  # the run allowed it before, and the audit uses no real label
        unproven.allow_unproven("immutable")
    folder = _checkpoint_folder(run, facts, config)
    saved_request = json.loads((folder / "request.json").read_text())
    canary_sets, canary_scores = list[CanarySet](), list[CanaryScores]()
    canary_limits = config.canaries, _max_canaries(facts, config)
    for index in range(config.trainings):
        report(f"training {index + 1} of {config.trainings}")
        training_folder = folder / str(index)
        training_folder.mkdir(exist_ok=True)
        task = train_config.make_task(features, space, row_mask, training_folder, public=public, users=users)
        canary_sets.append(
            _plant_canaries(task, train_config.recipe, probabilities, [saved_request["seed"], index], canary_limits)
        )
        canary_scores.append(
            _train_or_load(canary_sets[-1], task, train_config, probabilities, training_folder, report)
        )
    report("counting")
    result = _build_result(
        facts, config, canary_sets, canary_scores, probabilities, select_training_rows(task, train_config.recipe)
    )
    with atomic_write(run / RESULT_FILE) as partial:
        partial.write_text(json.dumps(result, indent=2) + "\n")
    shutil.rmtree(folder)
    return result


def _read_inputs(run: Path, data: Path, facts: dict[str, Any], config: AuditConfig) -> tuple[Any, TrainConfig, Any]:
    """Read the features, the training configuration and the public rows of a run."""
    reader = load_reader(run)
    features = reader(read_columns(TableFile(data), list(reader.columns), reader.text_columns))
    if len(features) != facts["data"]["rows"]:
        raise InputError(
            f"{data} has {len(features)} rows and the run was trained on {facts['data']['rows']}: give the table that "
            "it was trained on."
        )
    public, run_settings = None, facts.get("settings", {})
    if config.public is not None:
        public = reader(read_columns(TableFile(config.public), list(reader.columns), reader.text_columns))
    elif run_settings.get("public") or _protects_records(facts):
        raise InputError(
            "The teachers of this run voted on public rows, and a table of public rows is needed.", parameter="public"
        )
    _check_encoder(config.encoder, facts.get("encoder"))
    settings: dict[str, Any] = {"flip": reader.flip, "device": config.device, "progress": config.progress}
    settings |= {"encoder": config.encoder, "seed": facts["seed"], "public": config.public}
    settings |= {"epochs": run_settings.get("epochs"), "model": run_settings.get("model", "auto")}
    settings |= {"choose_by": run_settings.get("choose_by", "auto")}
    settings |= {"labels_per_user": (facts.get("users") or {}).get("labels_per_user")}
    train_config = TrainConfig(
        facts["epsilon"], facts["delta"], facts["recipe"], facts["options"], reader.kind, **settings
    )
    train_config.check()
    return features, train_config, public


def _check_encoder(encoder: Path | None, expected_digest: str | None) -> None:
    """Check that the encoder is that of the run."""
    digest = None if encoder is None else Model.load(encoder, "cpu").digest()[:16]
    if digest != expected_digest:
        if expected_digest is None:
            raise InputError("The training of this run used no encoder: leave the encoder out.")
        raise InputError(f"The training of this run used encoder {expected_digest}: name it.", parameter="encoder")


def _protects_records(facts: dict[str, Any]) -> bool:
    return "record" in (facts.get("model_unit"), facts["guarantee"].get("unit"))


def _read_users(data: Path, facts: dict[str, Any]) -> NDArray[np.int64] | None:
    """Read the owner of each row, a public fact, where the run protects users."""
    if not facts.get("users"):
        return None
    space = LabelSpace.from_json(facts["space"])
    table = SecretTable(TableFile(data), facts["data"]["label"], space, user_column=facts["users"]["column"])
    table.file.column_type(facts["users"]["column"])
    return table.read_user_ids()


def _checkpoint_folder(run: Path, facts: dict[str, Any], config: AuditConfig) -> Path:
    """Return the folder of this request's checkpoints, which holds the seed of its canaries."""
    key_parts = [_FORMAT_VERSION, facts["created"], config.canaries, _max_canaries(facts, config), config.trainings]
    key_parts += [str(config.encoder), str(config.public)]
    folder = run / f".audit.{hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:12]}.checkpoints"
    if not (folder / "request.json").is_file():
        try:
            folder.mkdir(exist_ok=True)
            with atomic_write(folder / "request.json") as partial:
                partial.write_text(json.dumps({"seed": secrets.randbits(64)}))
        except OSError as problem:
            raise InputError(f"{run} cannot be written to: {problem.strerror or problem}.") from None
    return folder


def _max_canaries(facts: dict[str, Any], config: AuditConfig) -> int:
    """Return the most canaries of a training: the sum of their deltas must stay far below the error rate."""
    delta = float(facts["guarantee"]["delta"])
    return (
        MAX_CANARIES
        if not delta
        else min(MAX_CANARIES, int(error_rate(config.confidence) / (4 * delta * config.trainings)))
    )


def _plant_canaries(
    task: Task, recipe: str, probabilities: NDArray[np.float64], seed: list[int], canary_limits: tuple[int | None, int]
) -> CanarySet:
    """Draw labels from the released model, and canaries among the training rows."""
    rng = np.random.default_rng(seed)
    cumulative = probabilities.cumsum(axis=1)
    codes = (rng.random((len(probabilities), 1)) * cumulative[:, -1:] >= cumulative[:, :-1]).sum(axis=1)
    return plant_canaries(
        codes, select_training_rows(task, recipe), probabilities.shape[1], rng, *canary_limits, task.users
    )


def _train_or_load(
    canary_set: CanarySet,
    task: Task,
    train_config: TrainConfig,
    probabilities: NDArray[np.float64],
    training_folder: Path,
    report: Callable[[str], None],
) -> CanaryScores:
    """Train, or read the scores of a finished training."""
    scores_path = training_folder / "played.npz"
    if scores_path.is_file():
        with np.load(scores_path) as stored:
            scores = {name.removeprefix("score "): stored[name] for name in stored.files if name.startswith("score ")}
            evidence = stored["evidence"] if "evidence" in stored.files else None
            return CanaryScores(scores, stored["model_confidence"], stored["probabilities"], evidence)
    # With a ledger, an interrupted training continues with the releases that were drawn.
    ledger = Ledger(training_folder / "throwaway.ledger")
    canary_scores = train_and_score(
        canary_set,
        task,
        train_config.recipe,
        train_config.options,
        reference_probabilities=probabilities,
        ledger=ledger,
        report=report,
    )
    arrays = {f"score {name}": values for name, values in canary_scores.scores.items()}
    model_arrays = {"model_confidence": canary_scores.model_confidence, "probabilities": canary_scores.probabilities}
    model_arrays |= {} if canary_scores.evidence is None else {"evidence": canary_scores.evidence}
    with atomic_write(scores_path) as partial, partial.open("wb") as stream:
        np.savez(stream, **arrays, **model_arrays)  # type: ignore[arg-type]
    return canary_scores


def _build_result(
    facts: dict[str, Any],
    config: AuditConfig,
    canary_sets: list[CanarySet],
    canary_scores: list[CanaryScores],
    probabilities: NDArray[np.float64],
    training_mask: NDArray[np.bool_],
) -> dict[str, Any]:
    """Count the guesses of all trainings together: independent trainings are one game with all of their coins."""
    epsilon, delta = float(facts["guarantee"]["epsilon"]), float(facts["guarantee"]["delta"])
    coins = np.concatenate([canary_set.coins for canary_set in canary_sets])
    views = {name: np.concatenate([each.scores[name] for each in canary_scores]) for name in canary_scores[0].scores}
    bound = one_run(views, coins, delta, config.confidence)
    model_confidence = np.concatenate([each.model_confidence for each in canary_scores])
    game_result = measure_canary_game(views[CONFIDENT_VIEW], model_confidence, coins, config.confidence)
    row_mask = training_mask.copy()
    row_mask[canary_sets[-1].row_ids] = False
    last = canary_scores[-1]
    evidence = None if last.evidence is None else last.evidence[row_mask]
    inference_inputs = canary_sets[-1].codes[row_mask], probabilities[row_mask], last.probabilities[row_mask]
    # In a run of users, a single label can have a stronger guarantee.
    label_guarantee = facts["users"]["label"] if facts.get("users") else facts["guarantee"]
    limits = float(label_guarantee["epsilon"]), float(label_guarantee["delta"])
    inference = measure_label_inference(*inference_inputs, *limits, config.confidence, evidence)
    claimed = epsilon if math.isfinite(epsilon) else float(facts["epsilon"])
    common = {"confidence": config.confidence, "stated_epsilon": json_number(epsilon)}
    return {
        "format": _FORMAT_VERSION,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": facts["recipe"],
        "stated": {"epsilon": json_number(epsilon), "delta": delta, "claimed": claimed},
        "trainings": config.trainings,
        "rows": len(probabilities),
        "lower_bound": bound.lower,
        "confidence": config.confidence,
        "holds": bound.lower <= claimed,
        "audits": [
            {"kind": "one run", "lower_bound": bound.lower, **common, **_drop_key(bound.to_json(), "lower")},
            {"kind": "canary game", **common, **game_result.to_json()},
            {"kind": "label inference", **common, **inference.to_json()},
        ],
        "notes": [*_NOTES, *[_USER_NOTE] * bool(facts.get("users")), *[_RECORD_NOTE] * _protects_records(facts)],
    }


def _drop_key(facts: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key != name}


_RECORD_NOTE = "Records are secret: half of the public rows replaced them, and teachers voted on the other half."
_USER_NOTE = "A canary is a user: one coin decides all of the user's labels that take part."
_NOTES = [
    "Labels were drawn from the released model, and canaries replaced some: no real label was used.",
    "A lower bound is wrong with probability 1 - confidence at most; nothing here bounds epsilon from above.",
    "The intervals of the canary game and of label inference treat guesses on one model as independent.",
]
