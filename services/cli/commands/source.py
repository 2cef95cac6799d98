"""``viaduck source …``: how long the source's snapshots are needed, and their expiry."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.commands.options import CommandContext, File, Pipeline, asks, end

app = typer.Typer(help="Show how far the source may be expired, and expire it.", no_args_is_help=True)


@app.command()
@asks("json")
def retention(call: CommandContext) -> None:
    """Show how far each source lake may be expired, and what holds it. Exit code 1 while a position is unknown."""
    from services.cli.output import retention as output

    end(output.show(call.client.retention(), call.named, call.json))


@app.command()
def expire(
    config: File,
    pipeline: Pipeline = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="DURATION", help="Only snapshots that are older: 7d, 36h.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="NUMBER", min=1, help="Keep so many of the newest.")
    ] = None,
    floor: Annotated[
        list[int] | None,
        typer.Option("--floor", metavar="SNAPSHOT", min=0, help="Keep this one and all after it; may be repeated."),
    ] = None,
    ignore_destination: Annotated[
        list[str] | None,
        typer.Option("--ignore-destination", metavar="ID", help="It may lose its history; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    clean_older_than: Annotated[
        str | None,
        typer.Option("--clean-older-than", metavar="DURATION", help="Then delete files that were let go so long ago."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="NUMBER", min=1, help="Snapshots of one run at most.")
    ] = 100_000,
) -> None:
    """Expire snapshots of the source that no destination needs. Exit code 1 while a position is unknown."""
    if older_than is not None and keep is not None:
        raise typer.BadParameter("goes without --keep", param_hint="--older-than")
    from services.cli.expire import command
    from services.cli.runtime.run_service import load_for

    asked = command.ExpiryOptions(
        older_than_s=_seconds(older_than, "--older-than"),
        older_than=older_than or "",
        keep=keep,
        floors=tuple(floor or ()),
        ignored=tuple(ignore_destination or ()),
        dry_run=dry_run,
        clean_older_than_s=_seconds(clean_older_than, "--clean-older-than"),
        limit=limit,
    )
    end(command.main(load_for(config), pipeline, asked))


def _seconds(text: str | None, option: str) -> float | None:
    from shared.contracts.upkeep import duration_s

    try:
        return None if text is None else duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
