"""``viaduck proposal …``: routing values that have no destination, and an operator's yes or no."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from services.cli.commands.options import Json, MaybeFile, Pipeline, Url, end, target

app = typer.Typer(help="List, accept and dismiss routing values without a destination.", no_args_is_help=True)

ProposalId = Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows.")]


class State(StrEnum):
    OPEN = "open"
    DISMISSED = "dismissed"


@app.command("list")
def list_(
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    state: Annotated[State, typer.Option(help="Only those in this state.")] = State.OPEN,
    json: Json = False,
) -> None:
    """Show the routing values that have no destination, those with most rows first."""
    from services.cli.output.listing import PROPOSALS, show_list

    asked = target(config, url)
    found = asked.client.proposals(asked.pipeline(pipeline), state.value)
    end(show_list(found, PROPOSALS, json))


@app.command()
def accept(
    proposal: ProposalId, config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, json: Json = False
) -> None:
    """Make it a destination, by the template of the file."""
    from services.cli.output.status_table import show_one

    asked = target(config, url)
    show_one(asked.client.accept(asked.pipeline(pipeline), proposal), json)


@app.command()
def dismiss(
    proposal: ProposalId, config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, json: Json = False
) -> None:
    """Dismiss a proposal. It stays dismissed, and can be accepted later."""
    from services.cli.output.status_table import show_one

    asked = target(config, url)
    show_one(asked.client.dismiss(asked.pipeline(pipeline), proposal), json)
