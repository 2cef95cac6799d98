"""``viaduck destination …``: the REST calls of destinations, from a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.commands.options import CommandContext, Id, IfMatch, asks, end, given
from shared.contracts.evolution import EvolutionPolicy

NUMBER = re.compile(r"[0-9]{1,18}")

app = typer.Typer(help="List, show, add, change and remove destinations.", no_args_is_help=True)


@app.command("list")
@asks("pipeline", "json")
def list_(
    call: CommandContext,
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Only ids that begin with this.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Only destinations whose id or routing value contains this.")
    ] = None,
    min_lag: Annotated[
        float | None,
        typer.Option("--min-lag", metavar="SECONDS", min=0, help="Only destinations with at least this lag."),
    ] = None,
    sort: Annotated[str | None, typer.Option(help="id, lag, -lag, position or -position.")] = None,
) -> None:
    """Show one line per destination."""
    from services.cli.output.status_table import list_all

    chosen = given(state=state, prefix=prefix, search=search, min_lag=min_lag, sort=sort)
    filters = {name: str(value) for name, value in chosen.items()}
    end(list_all(call.client, call.pipelines, call.json, **filters))


@app.command()
@asks("pipeline", "json")
def show(call: CommandContext, destination: Id) -> None:
    """Show everything about one destination."""
    from services.cli.output import status_table

    end(status_table.show(call.client, call.pipeline, destination, call.json))


@app.command()
@asks("pipeline", "wait", "json")
def add(
    call: CommandContext,
    destination: Id,
    routing_value: Annotated[str, typer.Option(help="The routing value of its rows.")],
    catalog: Annotated[str | None, typer.Option(help="Its lake's catalog; no password.")] = None,
    catalog_env: Annotated[str | None, typer.Option(help="The variable with the catalog, instead.")] = None,
    metadata_schema: Annotated[str | None, typer.Option(help="The schema of DuckLake's own tables.")] = None,
    data_path: Annotated[str | None, typer.Option(help="The path of its data files.")] = None,
    schema: Annotated[str | None, typer.Option(help="The schema of its table.")] = None,
    table: Annotated[str | None, typer.Option(help="Its table.")] = None,
    seed_mode: Annotated[str | None, typer.Option(help="scan, replay or latest.")] = None,
    name: Annotated[str | None, typer.Option(help="Display name.")] = None,
    partitioned_by: Annotated[str | None, typer.Option(help="Of its table: same, or columns and transforms.")] = None,
    sorted_by: Annotated[str | None, typer.Option(help="Of its table: same, or columns.")] = None,
    encrypted: Annotated[bool | None, typer.Option(help="Whether its lake is created encrypted.")] = None,
    evolution: Annotated[
        EvolutionPolicy | None, typer.Option(help="Which changes of the source's columns it follows.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="An S3 setting; may be repeated.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Check its lake before anything is written.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only, without adding it.")] = False,
    if_match: IfMatch = None,
) -> None:
    """Add a destination, or change it."""
    from services.cli.commands import destination_actions

    entry = given(
        routing_value=routing_value, catalog=catalog, catalog_env=catalog_env, schema=schema, name=name,
        metadata_schema=metadata_schema, data_path=data_path, table=table, seed_mode=seed_mode,
    )  # fmt: skip
    if layout := given(partitioned_by=partitioned_by, sorted_by=sorted_by, encrypted=encrypted):
        entry["layout"] = layout
    if evolution is not None:
        entry["evolution"] = {"policy": evolution.value}
    entry["properties"] = dict(_pair(each) for each in set_ or [])
    if dry_run:
        end(destination_actions.validate(call.client, call.pipeline, {"id": destination, **entry}, call.json))
    end(destination_actions.add(call, destination, entry, check=check, if_match=if_match))


@app.command("import")
@asks("pipeline", "json")
def import_(
    call: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="NDJSON", help="One entry per line, with its id.")],
    all_or_nothing: Annotated[bool, typer.Option("--all-or-nothing", help="Add none if one line fails.")] = False,
) -> None:
    """Add or change thousands at once."""
    from services.cli.commands import destination_actions

    end(destination_actions.import_(call.client, call.pipeline, file, all_or_nothing, call.json))


@app.command()
@asks("pipeline", "wait", "json")
def remove(
    call: CommandContext,
    destination: Id,
    drop_data: Annotated[bool, typer.Option("--drop-data", help="Drop its table and cursor as well.")] = False,
    if_match: IfMatch = None,
) -> None:
    """Forget a destination; its data stays unless it is to be dropped."""
    from services.cli.commands import destination_actions

    end(destination_actions.remove(call, destination, drop=drop_data, if_match=if_match))


def _switching(action: Any) -> Callable[..., None]:
    @asks("pipeline", "json")
    def switch(call: CommandContext, destination: Id, if_match: IfMatch = None) -> None:
        from services.cli.output.status_table import show_one

        show_one(call.client.act(call.pipeline, destination, action, if_match=if_match), call.json)

    return switch


for _action, _means in {
    "pause": "Plan nothing for it until it is resumed.",
    "resume": "Continue after a pause, or try a parked destination again.",
    "stop": "Stop it until it is restarted.",
    "restart": "Continue from its position at once.",
}.items():
    app.command(_action, help=_means)(_switching(_action))


@app.command()
@asks("pipeline", "wait", "json")
def reseed(
    call: CommandContext,
    destination: Id,
    begin: Annotated[
        str | None, typer.Option("--from", help="Of a topic: earliest, for its oldest record; else source.start.")
    ] = None,
    if_match: IfMatch = None,
) -> None:
    """Start a new generation with a scan of the source, or at a topic's start, which replaces all rows of its table."""
    from services.cli.commands import destination_actions

    begun = call.client.reseed(call.pipeline, destination, begin=begin, if_match=if_match)
    end(destination_actions.follow(call.client, begun, call.wait_s, call.json))


@app.command()
@asks("pipeline", "wait", "json")
def rewind(
    call: CommandContext,
    destination: Id,
    to: Annotated[
        list[str],
        typer.Option(
            "--to",
            metavar="POSITION",
            help="A snapshot that the source retains; of a topic PARTITION=OFFSET, which may be repeated.",
        ),
    ],
    if_match: IfMatch = None,
) -> None:
    """Start a new generation at an older snapshot of the source, or at older offsets of a topic, and continue there."""
    from services.cli.commands import destination_actions

    begun = call.client.rewind(call.pipeline, destination, _position(to), if_match=if_match)
    end(destination_actions.follow(call.client, begun, call.wait_s, call.json))


@app.command()
@asks("pipeline", "wait", "json")
def upkeep(
    call: CommandContext,
    destination: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All destinations of the pipeline.")] = False,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", help="compact, expire, clean or orphans; may be repeated. Else every step that is on."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")] = False,
) -> None:
    """Merge small files, expire snapshots, and delete files that are no longer needed."""
    from services.cli.commands import upkeep_actions

    if (destination is None) != all_:
        raise typer.BadParameter("give either an ID or --all", param_hint="--all")
    if destination is None:
        end(upkeep_actions.keep_all(call, step, dry_run=dry_run))
    end(upkeep_actions.keep(call, destination, step, dry_run=dry_run))


@app.command()
@asks("pipeline", "json")
def history(
    call: CommandContext,
    destination: Id,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
) -> None:
    """Show what was applied, the newest first, from the destination's own commits."""
    from services.cli.output.listing import COMMITS, show_list

    end(show_list(call.client.history(call.pipeline, destination, limit), COMMITS, call.json))


@app.command("at")
@asks("pipeline", "json")
def at_(
    call: CommandContext,
    destination: Id,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="A moment, with its offset: 2026-03-01T00:00:00Z.")
    ] = None,
    position: Annotated[
        int | None, typer.Option("--position", metavar="SNAPSHOT", min=0, help="A snapshot of the source, instead.")
    ] = None,
) -> None:
    """Show which snapshot of its lake holds what it had then, and a statement that reads it."""
    from services.cli.output.status_table import show_one

    if (time is None) == (position is None):
        raise typer.BadParameter("give either --time or --position", param_hint="--time")
    found = call.client.at(call.pipeline, destination, time=time, position=position)
    if not call.json:
        found = {**found, "columns": ", ".join(f"{each['name']} {each['type']}" for each in found["columns"])}
    show_one(found, call.json)


@app.command()
@asks("pipeline", "json")
def schema(call: CommandContext, destination: Id) -> None:
    """Show its columns beside the source's, and what is done to follow them. Exit code 1 if they are not followed."""
    from services.cli.output import destination_schema

    end(destination_schema.show(call.client, call.pipeline, destination, call.json))


@app.command()
@asks("pipeline", "json")
def health(
    call: CommandContext,
    destination: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one; else all.")] = None,
    sort: Annotated[
        str, typer.Option(help="Figures with commas between them; a minus puts the largest first.")
    ] = "-files,-old_bytes,-oldest_age",
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most.")] = None,
) -> None:
    """Show how lakes fare: files, rows, snapshots. Exit code 1 if one of those shown can't be looked at."""
    from services.cli.output import lake_health

    if destination is not None:
        end(lake_health.show_one(call.client, call.pipeline, destination, call.json))
    end(lake_health.show_all(call.client, call.pipelines, sort, limit, call.json))


def _position(texts: list[str]) -> int | dict[int, int]:
    """A snapshot, or offsets by partition."""
    if len(texts) == 1 and NUMBER.fullmatch(texts[0]):
        return int(texts[0])
    found: dict[int, int] = {}
    for text in texts:
        partition, _, offset = text.partition("=")
        if not NUMBER.fullmatch(partition) or not NUMBER.fullmatch(offset) or int(partition) in found:
            said = f"{text}: write a snapshot, or PARTITION=OFFSET once for each partition of a topic"
            raise typer.BadParameter(said, param_hint="--to")
        found[int(partition)] = int(offset)
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text}: write NAME=VALUE", param_hint="--property")
    return name, value
