"""``viaduck operation …``: actions that take longer than a request, and how far they are."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.commands.options import Json, MaybeFile, Pipeline, Timeout, Url, Wait, end, target

app = typer.Typer(help="List and show reseeds, rewinds, drops and upkeep.", no_args_is_help=True)

WAIT_S = 600.0


@app.command("list")
def list_(
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    destination: Annotated[
        str | None, typer.Option("--destination", metavar="ID", help="Only of this destination.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")] = 100,
    json: Json = False,
) -> None:
    """Show the newest operations, the newest first."""
    from services.cli.output.listing import OPERATIONS, show_list

    asked = target(config, url)
    end(show_list(asked.client.operations(asked.pipeline(pipeline), destination, limit), OPERATIONS, json))


@app.command()
def show(
    operation_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `viaduck operation list` shows.")],
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    wait: Wait = False,
    timeout: Timeout = WAIT_S,
    json: Json = False,
) -> None:
    """Show how far an operation is."""
    from services.cli.commands import destination_actions

    asked = target(config, url)
    found = asked.client.operation(asked.pipeline(pipeline), operation_id)
    end(destination_actions.follow(asked.client, found, timeout if wait else None, json))
