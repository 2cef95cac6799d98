"""``viaduck work …``: work items and dead letters, to see them and to send them again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.commands.options import Json, MaybeFile, Pipeline, Url, end, target

app = typer.Typer(help="List work items and dead letters, and send them again.", no_args_is_help=True)

Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]
Destination = Annotated[str | None, typer.Option("--destination", metavar="ID", help="Only of this destination.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]


Rate = Annotated[int | None, typer.Option(min=1, max=5_000, help="Messages a second; 1,000 if not given.")]

KINDS_HELP = "seed, changes, advance, probe, drop or upkeep."
SENT = ("matched", "sent", "refused", "more")


@app.command("list")
def list_(
    config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, destination: Destination = None,
    state: Annotated[str | None, typer.Option(help="waiting, in_flight, done or superseded.")] = None,
    limit: Limit = 100, json: Json = False,
) -> None:  # fmt: skip
    """Show the newest work items and what became of each."""
    from services.cli.output.listing import WORK, show_list

    asked = target(config, url)
    given = {"destination": destination, "state": state}
    filters = {name: value for name, value in given.items() if value is not None}
    end(show_list(asked.client.work(asked.pipeline(pipeline), limit, **filters), WORK, json))


@app.command()
def replay(
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    destination: Destination = None,
    kind: Annotated[str | None, typer.Option(help=KINDS_HELP)] = None,
    since: Annotated[str | None, typer.Option(help="Published at this time or later, with its zone.")] = None,
    until: Annotated[str | None, typer.Option(help="Published at this time or before.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="On this partition.")] = None,
    from_offset: Annotated[int | None, typer.Option(min=0, help="At this offset or later.")] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="At this offset or before.")] = None,
    after: Annotated[int | None, typer.Option(help="Of the snapshots after this one.")] = None,
    through: Annotated[int | None, typer.Option(help="Of the snapshots up to this one.")] = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Send work items again: all, or those that everything given holds for. The fence makes it harmless."""
    given: dict[str, Any] = {
        "destination": destination, "kind": kind, "since": since, "until": until, "partition": partition,
        "from_offset": from_offset, "to_offset": to_offset, "after": after, "through": through, "rate": rate,
    }  # fmt: skip
    asked = target(config, url)
    which = {name: value for name, value in given.items() if value is not None}
    _show(asked.client.replay(asked.pipeline(pipeline), **which, dry_run=dry_run), json)


@app.command("dead-letters")
def dead_letters(
    config: MaybeFile = None, url: Url = None, pipeline: Pipeline = None, limit: Limit = 100, json: Json = False
) -> None:
    """Show messages that could not be read, the newest first."""
    from services.cli.output.listing import LETTERS, show_list

    asked = target(config, url)
    end(show_list(asked.client.dead_letters(asked.pipeline(pipeline), limit), LETTERS, json))


@app.command()
def redrive(
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Pipeline = None,
    partition: Annotated[int | None, typer.Option(min=0, help="On this partition.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="At this offset.")] = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Send dead letters to where they came from: all, or the one at an offset."""
    asked = target(config, url)
    given = {"partition": partition, "offset": offset, "rate": rate}
    which = {name: value for name, value in given.items() if value is not None}
    _show(asked.client.redrive(asked.pipeline(pipeline), **which, dry_run=dry_run), json)


def _show(sent: dict[str, Any], json: bool) -> None:
    from services.cli.output.listing import show_list

    show_list([sent], SENT, json)
