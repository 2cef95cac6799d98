"""``viaduck operation …``: actions that take longer than a request, and how far they are."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.commands.options import CommandContext, Limit, OfDestination, asks, end

app = typer.Typer(help="List and show reseeds, rewinds, drops and upkeep.", no_args_is_help=True)


@app.command("list")
@asks("pipeline", "json")
def list_(call: CommandContext, destination: OfDestination = None, limit: Limit = 100) -> None:
    """Show the newest operations, the newest first."""
    from services.cli.output.listing import OPERATIONS, show_list

    end(show_list(call.client.operations(call.pipeline, destination, limit), OPERATIONS, call.json))


@app.command()
@asks("pipeline", "wait", "json")
def show(
    call: CommandContext,
    operation_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `viaduck operation list` shows.")],
) -> None:
    """Show how far an operation is."""
    from services.cli.commands import destination_actions

    found = call.client.operation(call.pipeline, operation_id)
    end(destination_actions.follow(call.client, found, call.wait_s, call.json))
