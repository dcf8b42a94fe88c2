"""The command `labeldp plan`: a comparison of recipes before any label is used."""

import json
from typing import Annotated

import typer

from labeldp.cli.options import AsJson, Epsilon, Range
from labeldp.cli.terminal import echo


def plan(
    rows: Annotated[int, typer.Option(help="The number of labeled rows.")],
    epsilon: Epsilon,
    classes: Annotated[int | None, typer.Option(help="The number of classes.")] = None,
    value_range: Range = None,
    delta: Annotated[
        float, typer.Option(help="Above 0, mechanisms with Gaussian noise are possible: 1e-6 is usual.")
    ] = 0.0,
    features: Annotated[str, typer.Option(help="table, embeddings or images.")] = "table",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    clusters: Annotated[
        int | None, typer.Option(help="The number of clusters that vote; by default, one for each class.")
    ] = None,
    purity: Annotated[
        float | None, typer.Option(help="The fraction of rows in the largest class of their cluster, if it is known.")
    ] = None,
    positives: Annotated[
        float | None,
        typer.Option(help="The fraction of the rarer of two classes, if it is known: 0.01 is one in a hundred."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Forecast each recipe from public facts and recommend one, before any label is used."""
    from labeldp.core.errors import InputError

    if (classes is None) == (value_range is None):
        raise InputError(
            "Declare the possible labels by exactly one option: --classes 2, or --range 0,100,1 for numeric labels."
        )
    if classes is None:
        from labeldp.privacy.vault.labeled_table import read_range
        from labeldp.report.regression_advice import format_number_advice, number_advice

        defaults = {
            "delta": 0.0,
            "features": "table",
            "device": "cpu",
            "clusters": None,
            "purity": None,
            "positives": None,
        }
        given_values = (delta, features, device, clusters, purity, positives)
        for (name, value), given_value in zip(defaults.items(), given_values, strict=True):
            if given_value != value:
                raise InputError(f"A plan for numeric labels does not use --{name}: leave it out.")
        result = number_advice(rows, read_range(value_range or ""), epsilon)
        echo(json.dumps(result, indent=2) if as_json else format_number_advice(result))
        return
    from labeldp.recipes.advisor.forecast import advise
    from labeldp.report.advice import print_advice, to_json

    setting = (rows, classes, epsilon, delta, features, device, clusters, purity, positives)
    advice = advise(*setting)  # type: ignore[arg-type]
    if as_json:
        echo(json.dumps(to_json(advice), indent=2))
    else:
        print_advice(advice)
