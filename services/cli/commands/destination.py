"""``viaduck destination …``: the REST calls of destinations, from a terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.commands.options import Id, IfMatch, Json, MaybeFile, Pipeline, Timeout, Url, Wait, end, target

app = typer.Typer(help="List, show, add, change and remove destinations.", no_args_is_help=True)

WAIT_S = 600.0


@app.command("list")
def list_(
    config: MaybeFile = None,
    url: Url = None,
    json: Json = False,
    pipeline: Pipeline = None,
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

    asked = target(config, url)
    given = {"state": state, "prefix": prefix, "search": search, "min_lag": min_lag, "sort": sort}
    filters = {name: str(value) for name, value in given.items() if value is not None}
    end(list_all(asked.client, [pipeline] if pipeline else asked.named, json, **filters))


@app.command()
def show(
    destination: Id, config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, json: Json = False
) -> None:
    """Show everything about one destination."""
    from services.cli.output import status_table

    asked = target(config, url)
    end(status_table.show(asked.client, asked.pipeline(pipeline), destination, json))


@app.command()
def add(
    destination: Id,
    routing_value: Annotated[str, typer.Option(help="The routing value of its rows.")],
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
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
    set_: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="An S3 setting; may be repeated.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Check its lake before anything is written.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only, without adding it.")] = False,
    if_match: IfMatch = None,
    wait: Wait = False,
    timeout: Timeout = WAIT_S,
    json: Json = False,
) -> None:
    """Add a destination, or change it."""
    from services.cli.commands import destination_actions

    given = {"routing_value": routing_value, "catalog": catalog, "catalog_env": catalog_env, "schema": schema,
             "metadata_schema": metadata_schema, "data_path": data_path, "table": table, "seed_mode": seed_mode,
             "name": name}  # fmt: skip
    entry: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    layout = {"partitioned_by": partitioned_by, "sorted_by": sorted_by, "encrypted": encrypted}
    if known := {key: value for key, value in layout.items() if value is not None}:
        entry["layout"] = known
    entry["properties"] = dict(_pair(each) for each in set_ or [])
    asked = target(config, url)
    chosen = asked.pipeline(pipeline)
    if dry_run:
        end(destination_actions.validate(asked.client, chosen, {"id": destination, **entry}, json))
    wait_s = timeout if wait else None
    end(
        destination_actions.add(
            asked.client, chosen, destination, entry, check=check, if_match=if_match, wait_s=wait_s, as_json=json
        )
    )


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="NDJSON", help="One entry per line, with its id.")],
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    all_or_nothing: Annotated[bool, typer.Option("--all-or-nothing", help="Add none if one line fails.")] = False,
    json: Json = False,
) -> None:
    """Add or change thousands at once."""
    from services.cli.commands import destination_actions

    asked = target(config, url)
    end(destination_actions.import_(asked.client, asked.pipeline(pipeline), file, all_or_nothing, json))


@app.command()
def remove(
    destination: Id,
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    drop_data: Annotated[bool, typer.Option("--drop-data", help="Drop its table and cursor as well.")] = False,
    if_match: IfMatch = None,
    wait: Wait = False,
    timeout: Timeout = WAIT_S,
    json: Json = False,
) -> None:
    """Forget a destination; its data stays unless it is to be dropped."""
    from services.cli.commands import destination_actions

    asked = target(config, url)
    chosen = asked.pipeline(pipeline)
    wait_s = timeout if wait else None
    end(
        destination_actions.remove(
            asked.client, chosen, destination, drop=drop_data, if_match=if_match, wait_s=wait_s, as_json=json
        )
    )


def _switching(action: Any) -> Callable[..., None]:
    def switch(
        destination: Id, config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, if_match: IfMatch = None,
        json: Json = False,
    ) -> None:  # fmt: skip
        from services.cli.output.status_table import show_one

        asked = target(config, url)
        show_one(asked.client.act(asked.pipeline(pipeline), destination, action, if_match=if_match), json)

    return switch


for _action, _means in {
    "pause": "Plan nothing for it until it is resumed.",
    "resume": "Continue after a pause, or try a parked destination again.",
    "stop": "Stop it until it is restarted.",
    "restart": "Continue from its position at once.",
}.items():
    app.command(_action, help=_means)(_switching(_action))


@app.command()
def reseed(
    destination: Id, config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, if_match: IfMatch = None,
    wait: Wait = False, timeout: Timeout = WAIT_S, json: Json = False,
) -> None:  # fmt: skip
    """Start a new generation with a scan of the source, which replaces all rows of its table."""
    from services.cli.commands import destination_actions

    asked = target(config, url)
    chosen = asked.pipeline(pipeline)
    begun = asked.client.reseed(chosen, destination, if_match=if_match)
    end(destination_actions.follow(asked.client, begun, timeout if wait else None, json))


@app.command()
def rewind(
    destination: Id,
    to: Annotated[int, typer.Option("--to", metavar="SNAPSHOT", min=0, help="A snapshot that the source retains.")],
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    if_match: IfMatch = None,
    wait: Wait = False,
    timeout: Timeout = WAIT_S,
    json: Json = False,
) -> None:
    """Start a new generation at an older snapshot of the source, and continue from there."""
    from services.cli.commands import destination_actions

    asked = target(config, url)
    chosen = asked.pipeline(pipeline)
    begun = asked.client.rewind(chosen, destination, to, if_match=if_match)
    end(destination_actions.follow(asked.client, begun, timeout if wait else None, json))


@app.command()
def upkeep(
    destination: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one.")] = None,
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    all_: Annotated[bool, typer.Option("--all", help="All destinations of the pipeline.")] = False,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", help="compact, expire, clean or orphans; may be repeated. Else every step that is on."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")] = False,
    wait: Wait = False,
    timeout: Timeout = WAIT_S,
    json: Json = False,
) -> None:
    """Merge small files, expire snapshots, and delete files that are no longer needed."""
    from services.cli.commands import upkeep_actions

    if (destination is None) != all_:
        raise typer.BadParameter("give either an ID or --all", param_hint="--all")
    asked = target(config, url)
    chosen, wait_s = asked.pipeline(pipeline), timeout if wait else None
    if destination is None:
        end(upkeep_actions.keep_all(asked.client, chosen, step, dry_run=dry_run, wait_s=wait_s, as_json=json))
    end(upkeep_actions.keep(asked.client, chosen, destination, step, dry_run=dry_run, wait_s=wait_s, as_json=json))


@app.command()
def history(
    destination: Id,
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """Show what was applied, the newest first, from the destination's own commits."""
    from services.cli.output.listing import COMMITS, show_list

    asked = target(config, url)
    end(show_list(asked.client.history(asked.pipeline(pipeline), destination, limit), COMMITS, json))


@app.command("at")
def at_(
    destination: Id,
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="A moment, with its offset: 2026-03-01T00:00:00Z.")
    ] = None,
    position: Annotated[
        int | None, typer.Option("--position", metavar="SNAPSHOT", min=0, help="A snapshot of the source, instead.")
    ] = None,
    json: Json = False,
) -> None:
    """Show which snapshot of its lake holds what it had then, and a statement that reads it."""
    from services.cli.output.status_table import show_one

    if (time is None) == (position is None):
        raise typer.BadParameter("give either --time or --position", param_hint="--time")
    asked = target(config, url)
    found = asked.client.at(asked.pipeline(pipeline), destination, time=time, position=position)
    if not json:
        found = {**found, "columns": ", ".join(f"{each['name']} {each['type']}" for each in found["columns"])}
    show_one(found, json)


@app.command()
def health(
    destination: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one; else all.")] = None,
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    sort: Annotated[
        str, typer.Option(help="Figures with commas between them; a minus puts the largest first.")
    ] = "-files,-old_bytes,-oldest_age",
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most.")] = None,
    json: Json = False,
) -> None:
    """Show how lakes fare: files, rows, snapshots. Exit code 1 if one of those shown can't be looked at."""
    from services.cli.output import lake_health

    asked = target(config, url)
    if destination is not None:
        end(lake_health.show_one(asked.client, asked.pipeline(pipeline), destination, json))
    chosen = [pipeline] if pipeline else asked.pipelines
    end(lake_health.show_all(asked.client, chosen, sort, limit, json))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text}: write NAME=VALUE", param_hint="--property")
    return name, value
