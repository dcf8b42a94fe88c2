"""The command `labeldp audit`: lower bounds of epsilon for mechanisms and runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.options import AsJson, DeviceOption

_DRAWS, _SLOW_DRAWS = 100_000, 20_000


def audit(
    run: Annotated[Path | None, typer.Argument(help="A run folder of `labeldp train`.")] = None,
    data: Annotated[
        Path | None, typer.Argument(help="The training table of the run; its label column is not read.")
    ] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="Instead of a run, a mechanism by name: rr, laplace, histogram, gnmax ...")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="For a mechanism: its epsilon.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="For a mechanism: its delta; by default 1e-5 if it needs one, otherwise 0.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="For a mechanism: the number of classes; by default 2.")] = None,
    queries: Annotated[int | None, typer.Option(help="For votes: the number of queries; by default 1.")] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="For a mechanism: the releases to draw on each of two neighboring data sets; by default 100,000."
        ),
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option(help="For a run: the number of canaries; by default a fifth of the rows, at most 1,000."),
    ] = None,
    trainings: Annotated[
        int | None, typer.Option(help="For a run: the number of trainings; more give a larger bound.")
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="The confidence of the bounds; by default 0.99 for mechanisms, 0.95 for runs.")
    ] = None,
    encoder: Annotated[
        Path | None, typer.Option(help="For a run that was trained with an encoder: that encoder.")
    ] = None,
    public: Annotated[Path | None, typer.Option(help="For a run with public rows: the table of these rows.")] = None,
    device: DeviceOption = "auto",
    as_json: AsJson = False,
) -> None:
    """Test a guarantee: compute a lower bound of epsilon of a mechanism or of a run."""
    run_options: dict[str, Any] = {"canaries": canaries, "trainings": trainings, "encoder": encoder, "public": public}
    mechanism_options = {"epsilon": epsilon, "delta": delta, "classes": classes, "queries": queries, "draws": draws}
    if mechanism is not None:
        _refuse_options({"RUN": run, **_flag_names(run_options)}, "a run, and --mechanism audits a mechanism")
        holds = _audit_mechanism(mechanism, mechanism_options, confidence, as_json)
    else:
        _refuse_options(_flag_names(mechanism_options), "a mechanism: name one by --mechanism")
        holds = _audit_run(run, data, _drop_none(run_options), confidence, device, as_json)
    if not holds:
        raise typer.Exit(1)


def _flag_names(values: dict[str, Any]) -> dict[str, Any]:
    return {f"--{name}": value for name, value in values.items()}


def _drop_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _refuse_options(values: dict[str, Any], target: str) -> None:
    from labeldp.core.errors import InputError

    if extra := list(_drop_none(values)):
        raise InputError(f"{extra[0]} is for {target}.")


def _audit_mechanism(name: str, options: dict[str, Any], confidence: float | None, as_json: bool) -> bool:
    from labeldp.audit.mechanism import audit_mechanism
    from labeldp.audit.mechanism_names import make_mechanism
    from labeldp.audit.noise_repetition import repeats_noise
    from labeldp.cli.terminal import print_result, show_status
    from labeldp.core.errors import InputError

    if options["epsilon"] is None:
        raise InputError("Set the epsilon of the mechanism: --epsilon 1, for example.")
    size_options = {"classes": 2, "queries": 1} | _drop_none({name: options[name] for name in ("classes", "queries")})
    audited_mechanism, delta = make_mechanism(name, options["epsilon"], options["delta"], **size_options)
    show_status("drawing")
    defaults = {"draws": _SLOW_DRAWS if name == "stable-vote" else _DRAWS, "confidence": 0.99}
    result = audit_mechanism(
        audited_mechanism, delta=delta, **defaults | _drop_none({"draws": options["draws"], "confidence": confidence})
    )
    show_status("comparing fresh processes")
    seeded = repeats_noise(name, options["epsilon"], delta, **size_options)
    claim = f"{result.mechanism} states epsilon {result.epsilon:.4g}" + (f" and delta {delta:g}." if delta else ".")
    noise = {
        False: "Two fresh processes drew different noise.",
        None: "Two fresh processes drew the same values, which is likely by chance here: this is no evidence.",
        True: "Two fresh processes drew the same noise: IT IS SEEDED and protects nothing.",
    }[seeded]
    lower = _bound_sentence(
        result.lower, result.confidence, result.holds, f"{result.draws:,} draws on each of two neighboring data sets"
    )
    if result.constant:
        lower = "Every draw gave the same outcome for all labels: THE AUDIT SHOWS NOTHING. Raise epsilon."
    print_result(result.to_json() | {"seeded": seeded}, "\n".join([claim, lower, noise]), as_json)
    return result.holds and not seeded


def _audit_run(
    run: Path | None, data: Path | None, options: dict[str, Any], confidence: float | None, device: str, as_json: bool
) -> bool:
    from labeldp.cli.terminal import print_result, show_status
    from labeldp.core.errors import InputError

    if run is None:
        raise InputError("Name a run folder and its table, or a mechanism: --mechanism rr --epsilon 1, for example.")
    if data is None:
        raise InputError(f"Name the table too: labeldp audit {run} DATA. Its features are read, its labels are not.")
    from labeldp.audit.run_audit import AuditConfig, audit_run  # imports torch, so only after the checks
    from labeldp.report.card import write_card

    confidence_option: dict[str, Any] = {} if confidence is None else {"confidence": confidence}
    result = audit_run(
        run, data, AuditConfig(device=device, progress=not as_json, **options, **confidence_option), show_status
    )
    write_card(run)
    stated, (bound, _, inference) = result["stated"], result["audits"]
    claim = f"The run states epsilon {float(stated['epsilon']):g}" + (
        f" and delta {stated['delta']:g}." if stated["delta"] else "."
    )
    evidence = f"{bound['correct']:,} of {bound['guesses']:,} guesses correct about {bound['canaries']:,} canaries"
    lower = _bound_sentence(result["lower_bound"], result["confidence"], result["holds"], evidence)
    gain = (
        f"With the {inference['view']}, an attacker guesses {inference['attack']:.1%} of the labels; from features "
        f"alone {inference['features_alone']:.1%}. Epsilon allows {inference['allowed']:.1%} more."
    )
    print_result(result, "\n".join([claim, lower, gain]), as_json)
    return bool(result["holds"])


def _bound_sentence(lower: float, confidence: float, holds: bool, evidence: str) -> str:
    verdict = "the audit does not contradict the guarantee" if holds else "THE STATED EPSILON IS WRONG"
    return f"Epsilon is at least {lower:.3f} ({confidence:.10g} confidence, {evidence}): {verdict}."
