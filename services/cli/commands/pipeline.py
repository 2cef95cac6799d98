"""``viaduck pipeline …``: pipelines as a whole, and what was done to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.commands.options import Json, MaybeFile, Pipeline, Timeout, Url, Wait, end, target

app = typer.Typer(help="List, show, put and remove pipelines.", no_args_is_help=True)

WAIT_S = 600.0
Name = Annotated[str, typer.Argument(metavar="NAME")]

Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]
OfDestination = Annotated[str | None, typer.Option("--destination", metavar="ID", help="Only of this destination.")]


@app.command("list")
def list_(config: MaybeFile = None, url: Url = None, json: Json = False) -> None:
    """Show one line per pipeline."""
    from services.cli.output.listing import show_list

    client = target(config, url).client
    found = [client.pipeline(name) for name in client.pipelines()]
    end(show_list(found, ("name", "managed_by", "source_snapshot", "caught_up", "settled", "destinations"), json))


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Required if there are several.")] = None,
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    json: Json = False,
) -> None:
    """Show everything about one pipeline."""
    from services.cli.output.status_table import show_one

    asked = target(config, url)
    show_one(asked.client.pipeline(asked.pipeline(name or pipeline)), json)


@app.command()
def put(
    name: Name,
    file: Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="The document, in YAML or JSON.")],
    config: MaybeFile = None,
    url: Url = None,
    check: Annotated[bool, typer.Option(help="Check its source before anything is written.")] = True,
    wait: Wait = False,
    timeout: Timeout = WAIT_S,
    json: Json = False,
) -> None:
    """Add or change a pipeline that no file of the services declares."""
    from services.cli.commands import pipeline_actions

    client = target(config, url).client
    end(pipeline_actions.put(client, name, file, check=check, wait_s=timeout if wait else None, as_json=json))


@app.command()
def remove(name: Name, config: MaybeFile = None, url: Url = None, json: Json = False) -> None:
    """Stop and forget a pipeline that was put, with all its destinations; their data stays."""
    from services.cli.commands import pipeline_actions

    end(pipeline_actions.remove(target(config, url).client, name, json))


@app.command()
def audit(
    config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, destination: OfDestination = None,
    limit: Limit = 100, json: Json = False,
) -> None:  # fmt: skip
    """Show who did what to which destination, the newest first."""
    from services.cli.output.listing import CHANGES, show_list

    asked = target(config, url)
    end(show_list(asked.client.audit(asked.pipeline(pipeline), destination, limit), CHANGES, json))
