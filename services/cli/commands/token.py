"""``viaduck token …``: with a file straight in the registry, so that there can be a first one; else over REST."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.commands.options import Json, MaybeFile, Url, call, end

app = typer.Typer(help="Bearer tokens: create, list and revoke them.", no_args_is_help=True)


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"
    DROP = "drop"
    ADMIN = "admin"


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for the audit trail.")],
    scope: Annotated[Scope, typer.Option(help="Its rights; each scope includes the scopes before it.")] = Scope.WRITE,
    pipeline: Annotated[list[str] | None, typer.Option(help="Limit it to this pipeline; may be repeated.")] = None,
    config: MaybeFile = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Create a token. It is shown once, and can't be shown again."""
    from services.cli.output.status_table import print_json

    if url is not None:
        made = call(config, url).client.create_token(name, scope.value, pipeline or None)
    else:
        made = _registry(config, "create", name, scope.value, pipeline or None)
    if json:
        print_json([made])
    else:
        print(made["token"])
        only = f" for {', '.join(pipeline)}" if pipeline else ""
        typer.echo(f"{name}: {scope.value}{only}, revoke it with `viaduck token revoke {made['id']}`", err=True)


@app.command("list")
def list_(config: MaybeFile = None, url: Url = None, json: Json = False) -> None:
    """Show the tokens that there are and were, without their secrets."""
    from services.cli.output.listing import TOKENS, show_list

    found = call(config, url).client.tokens() if url is not None else _registry(config, "tokens")
    end(show_list(found, TOKENS, json))


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `viaduck token list` shows.")],
    config: MaybeFile = None,
    url: Url = None,
) -> None:
    """Revoke a token; it opens nothing any more within seconds."""
    if url is not None:
        call(config, url).client.revoke_token(token_id)
    else:
        _registry(config, "revoke", token_id)


def _registry(config: list[Path] | None, function: str, *arguments: str | list[str] | None) -> Any:
    """Opens the registry itself: access to it includes every right anyway."""
    from services.cli.runtime.run_service import load_for
    from services.control.operations import token_command

    if not config:
        raise typer.BadParameter("give either a file or an address", param_hint="-c / --url")
    return getattr(token_command, function)(load_for(config).common, *arguments)
