"""``viaduck work …``: work items, dead letters and rejected records, to see them and to send them again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.commands.options import CommandContext, Limit, OfDestination, asks, end, given

app = typer.Typer(help="List work items, dead letters and rejected records, and send them again.", no_args_is_help=True)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]
Rate = Annotated[int | None, typer.Option(min=1, max=5_000, help="Messages a second; 1,000 if not given.")]

KINDS_HELP = "seed, changes, advance, probe, drop or upkeep."
SENT = ("matched", "sent", "refused", "more")


@app.command("list")
@asks("pipeline", "json")
def list_(
    call: CommandContext,
    destination: OfDestination = None,
    state: Annotated[str | None, typer.Option(help="waiting, in_flight, done or superseded.")] = None,
    limit: Limit = 100,
) -> None:
    """Show the newest work items and what became of each."""
    from services.cli.output.listing import WORK, show_list

    filters = given(destination=destination, state=state)
    end(show_list(call.client.work(call.pipeline, limit, **filters), WORK, call.json))


@app.command()
@asks("pipeline", "json")
def replay(
    call: CommandContext,
    destination: OfDestination = None,
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
) -> None:
    """Send work items again: all, or those that everything given holds for. The fence makes it harmless."""
    which = given(
        destination=destination, kind=kind, since=since, until=until, partition=partition, from_offset=from_offset,
        to_offset=to_offset, after=after, through=through, rate=rate,
    )  # fmt: skip
    _show(call.client.replay(call.pipeline, **which, dry_run=dry_run), call.json)


@app.command("dead-letters")
@asks("pipeline", "json")
def dead_letters(call: CommandContext, limit: Limit = 100) -> None:
    """Show messages that could not be read, the newest first."""
    from services.cli.output.listing import LETTERS, show_list

    end(show_list(call.client.dead_letters(call.pipeline, limit), LETTERS, call.json))


@app.command()
@asks("pipeline", "json")
def redrive(
    call: CommandContext,
    partition: Annotated[int | None, typer.Option(min=0, help="On this partition.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="At this offset.")] = None,
    rate: Rate = None,
    dry_run: DryRun = False,
) -> None:
    """Send dead letters to where they came from: all, or the one at an offset."""
    which = given(partition=partition, offset=offset, rate=rate)
    _show(call.client.redrive(call.pipeline, **which, dry_run=dry_run), call.json)


@app.command()
@asks("pipeline", "json")
def rejected(
    call: CommandContext,
    partition: Annotated[
        int | None, typer.Option(min=0, help="On this partition of the topic of rejected records.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="At this offset of it.")] = None,
    limit: Limit = 100,
) -> None:
    """Show records of the source's topic that could not become rows, about the newest first."""
    from services.cli.output.listing import REJECTED, show_list

    where = given(partition=partition, offset=offset)
    end(show_list(call.client.rejected(call.pipeline, limit, **where), REJECTED, call.json))


@app.command("redrive-rejected")
@asks("pipeline", "json")
def redrive_rejected(
    call: CommandContext,
    partition: Annotated[
        int | None, typer.Option(min=0, help="On this partition, as `work rejected` shows it.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="At this offset.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also what was sent before: the topic then holds it twice.")
    ] = False,
    rate: Rate = None,
    dry_run: DryRun = False,
) -> None:
    """Send rejected records to their topic again: all that were not sent before, or the one at an offset."""
    which = given(partition=partition, offset=offset, rate=rate)
    _show(call.client.redrive_rejected(call.pipeline, **which, again=again, dry_run=dry_run), call.json)


def _show(sent: dict[str, Any], json: bool) -> None:
    from services.cli.output.listing import show_list

    show_list([sent], SENT, json)
