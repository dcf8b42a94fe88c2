"""`labeldp audit`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.options import AsJson, Device

_DRAWS, _SLOW_DRAWS = 100_000, 20_000


def audit(
    run: Annotated[Path | None, typer.Argument(help="A run folder that `labeldp train` made.")] = None,
    data: Annotated[
        Path | None, typer.Argument(help="The table that the run was trained on; its label column is not read.")
    ] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="Instead of a run, a mechanism by name: rr, laplace, histogram, gnmax ...")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon that the mechanism is set to.")] = None,
    delta: Annotated[float | None, typer.Option(help="Its delta: 1e-5 where it needs one, else 0.")] = None,
    classes: Annotated[int | None, typer.Option(help="How many classes a label has; at first 2.")] = None,
    queries: Annotated[int | None, typer.Option(help="For votes: how many queries a run answers; at first 1.")] = None,
    draws: Annotated[int | None, typer.Option(help="Releases to draw in each of two worlds; at first 100,000.")] = None,
    canaries: Annotated[
        int | None, typer.Option(help="For a run: by default a fifth of the rows, 1,000 at most.")
    ] = None,
    trainings: Annotated[int | None, typer.Option(help="For a run: more trainings give a sharper bound.")] = None,
    confidence: Annotated[
        float | None, typer.Option(help="How sure a bound is; 0.99 for mechanisms, 0.95 for runs.")
    ] = None,
    encoder: Annotated[Path | None, typer.Option(help="For a run of images, if it was given an encoder.")] = None,
    public: Annotated[Path | None, typer.Option(help="For a run whose teachers voted on public rows.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Check a promise: bound epsilon from below, of a mechanism by its draws or of a run by canaries."""
    of_run: dict[str, Any] = {"canaries": canaries, "trainings": trainings, "encoder": encoder, "public": public}
    of_mechanism = {"epsilon": epsilon, "delta": delta, "classes": classes, "queries": queries, "draws": draws}
    if mechanism is not None:
        _refuse({"RUN": run, **_options(of_run)}, "a run, and --mechanism audits a mechanism")
        holds = _mechanism(mechanism, of_mechanism, confidence, as_json)
    else:
        _refuse(_options(of_mechanism), "a mechanism: name one by --mechanism")
        holds = _run(run, data, _given(of_run), confidence, device, as_json)
    if not holds:
        raise typer.Exit(1)


def _options(values: dict[str, Any]) -> dict[str, Any]:
    return {f"--{name}": value for name, value in values.items()}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _refuse(values: dict[str, Any], what: str) -> None:
    from labeldp.core.errors import InputError

    if spare := list(_given(values)):
        raise InputError(f"{spare[0]} is for {what}.")


def _mechanism(name: str, given: dict[str, Any], confidence: float | None, as_json: bool) -> bool:
    from labeldp.audit.fresh import repeats
    from labeldp.audit.mechanism import audit_mechanism
    from labeldp.audit.named import named
    from labeldp.cli.screen import say, tell
    from labeldp.core.errors import InputError

    if given["epsilon"] is None:
        raise InputError("Say by --epsilon how private the mechanism shall be: 1, for example.")
    asked = {"classes": 2, "queries": 1} | _given({name: given[name] for name in ("classes", "queries")})
    made, delta = named(name, given["epsilon"], given["delta"], **asked)
    tell("drawing")
    usual = {"draws": _SLOW_DRAWS if name == "stable-vote" else _DRAWS, "confidence": 0.99}
    found = audit_mechanism(made, delta=delta, **usual | _given({"draws": given["draws"], "confidence": confidence}))
    tell("comparing fresh processes")
    seeded = repeats(name, given["epsilon"], delta, **asked)
    said = f"{found.mechanism} states epsilon {found.epsilon:.4g}" + (f" and delta {delta:g}." if delta else ".")
    noise = {
        False: "Two fresh processes drew different noise.",
        None: "Two fresh processes drew the same, as chance alone often has it here: that tells nothing.",
        True: "Two fresh processes drew the same noise: IT IS SEEDED, and protects nothing.",
    }[seeded]
    lower = _at_least(found.lower, found.confidence, found.holds, f"{found.draws:,} draws in each of two worlds")
    if found.constant:
        lower = "It gave the same outcome in every draw, whatever the label: THE AUDIT SHOWS NOTHING. Raise epsilon."
    say(found.to_json() | {"seeded": seeded}, "\n".join([said, lower, noise]), as_json)
    return found.holds and not seeded


def _run(
    run: Path | None, data: Path | None, given: dict[str, Any], confidence: float | None, device: str, as_json: bool
) -> bool:
    from labeldp.cli.screen import say, tell
    from labeldp.core.errors import InputError

    if run is None:
        raise InputError("Name a run folder and its table, or a mechanism: --mechanism rr --epsilon 1, for example.")
    if data is None:
        raise InputError(f"Name the table too: labeldp audit {run} DATA. Its features are read, its labels are not.")
    from labeldp.audit.folder import Request, audit_run  # torch, only now that the request makes sense
    from labeldp.report.card import write_card

    sure: dict[str, Any] = {} if confidence is None else {"confidence": confidence}
    result = audit_run(run, data, Request(device=device, progress=not as_json, **given, **sure), tell)
    write_card(run)
    stated, (bound, _, inferred) = result["stated"], result["audits"]
    said = f"The run states epsilon {float(stated['epsilon']):g}" + (
        f" and delta {stated['delta']:g}." if stated["delta"] else "."
    )
    how = f"{bound['correct']:,} of {bound['guesses']:,} guesses right about {bound['canaries']:,} canaries"
    lower = _at_least(result["lower_bound"], result["confidence"], result["holds"], how)
    gain = (
        f"Whoever sees the {inferred['view']} guesses a label right in {inferred['attack']:.1%} of rows, and in "
        f"{inferred['features_alone']:.1%} from features alone; epsilon allows {inferred['allowed']:.1%} more."
    )
    say(result, "\n".join([said, lower, gain]), as_json)
    return bool(result["holds"])


def _at_least(lower: float, confidence: float, holds: bool, how: str) -> str:
    verdict = "nothing was found against it" if holds else "THE CLAIM IS FALSE"
    return f"Epsilon is at least {lower:.3f} ({confidence:.10g} confidence, {how}): {verdict}."
