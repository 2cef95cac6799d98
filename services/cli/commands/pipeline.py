"""``viaduck pipeline …``: pipelines as a whole, and what was done to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import CommandContext, Limit, OfDestination, asks, end

app = typer.Typer(help="List, show, put and remove pipelines.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.command("list")
@asks("json")
def list_(call: CommandContext) -> None:
    """Show one line per pipeline."""
    from services.cli.output.listing import show_list

    found = [call.client.pipeline(name) for name in call.client.pipelines()]
    columns = ("name", "managed_by", "source_snapshot", "caught_up", "settled", "destinations")
    end(show_list(found, columns, call.json))


@app.command()
@asks("pipeline", "json")
def show(
    call: CommandContext,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Required if there are several.")] = None,
) -> None:
    """Show everything about one pipeline."""
    from services.cli.output.status_table import show_one

    show_one(call.client.pipeline(name or call.pipeline), call.json)


@app.command()
@asks("wait", "json")
def put(
    call: CommandContext,
    name: Name,
    file: Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="The document, in YAML or JSON.")],
    check: Annotated[bool, typer.Option(help="Check its source before anything is written.")] = True,
) -> None:
    """Add or change a pipeline that no file of the services declares."""
    from services.cli.commands import pipeline_actions

    end(pipeline_actions.put(call.client, name, file, check=check, wait_s=call.wait_s, as_json=call.json))


@app.command()
@asks("json")
def remove(call: CommandContext, name: Name) -> None:
    """Stop and forget a pipeline that was put, with all its destinations; their data stays."""
    from services.cli.commands import pipeline_actions

    end(pipeline_actions.remove(call.client, name, call.json))


@app.command()
@asks("pipeline", "json")
def audit(call: CommandContext, destination: OfDestination = None, limit: Limit = 100) -> None:
    """Show who did what to which destination, the newest first."""
    from services.cli.output.listing import CHANGES, show_list

    end(show_list(call.client.audit(call.pipeline, destination, limit), CHANGES, call.json))
