"""``viaduck pipeline …``: pipelines as a whole, and what was done to them."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.options import Json, MaybeFile, Pipeline, Url, end, target

app = typer.Typer(help="Pipelines: how far they are, and what was done to them.", no_args_is_help=True)

Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]
OfDestination = Annotated[str | None, typer.Option("--destination", metavar="ID", help="Of this one alone.")]


@app.command("list")
def list_(config: MaybeFile = None, url: Url = None, json: Json = False) -> None:
    """Show one line per pipeline."""
    from services.cli.listing import show_list

    asked = target(config, url)
    found = [asked.client.pipeline(name) for name in asked.pipelines]
    end(show_list(found, ("name", "source_snapshot", "caught_up", "settled", "destinations"), json))


@app.command()
def show(config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, json: Json = False) -> None:
    """Show everything about one pipeline."""
    from services.cli.status import show_one

    asked = target(config, url)
    show_one(asked.client.pipeline(asked.pipeline(pipeline)), json)


@app.command()
def audit(
    config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, destination: OfDestination = None,
    limit: Limit = 100, json: Json = False,
) -> None:  # fmt: skip
    """Show who did what to which destination, the newest first."""
    from services.cli.listing import CHANGES, show_list

    asked = target(config, url)
    end(show_list(asked.client.audit(asked.pipeline(pipeline), destination, limit), CHANGES, json))
