"""``viaduck proposal …``: routing values that have no destination, and an operator's yes or no."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from services.cli.commands.options import CommandContext, asks, end

app = typer.Typer(help="List, accept and dismiss routing values without a destination.", no_args_is_help=True)

ProposalId = Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows.")]


class ProposalState(StrEnum):
    OPEN = "open"
    DISMISSED = "dismissed"


@app.command("list")
@asks("pipeline", "json")
def list_(
    call: CommandContext,
    state: Annotated[ProposalState, typer.Option(help="Only those in this state.")] = ProposalState.OPEN,
) -> None:
    """Show the routing values that have no destination, those with most rows first."""
    from services.cli.output.listing import PROPOSALS, show_list

    end(show_list(call.client.proposals(call.pipeline, state.value), PROPOSALS, call.json))


@app.command()
@asks("pipeline", "json")
def accept(call: CommandContext, proposal: ProposalId) -> None:
    """Make it a destination, by the template of the file."""
    from services.cli.output.status_table import show_one

    show_one(call.client.accept(call.pipeline, proposal), call.json)


@app.command()
@asks("pipeline", "json")
def dismiss(call: CommandContext, proposal: ProposalId) -> None:
    """Dismiss a proposal. It stays dismissed, and can be accepted later."""
    from services.cli.output.status_table import show_one

    show_one(call.client.dismiss(call.pipeline, proposal), call.json)
