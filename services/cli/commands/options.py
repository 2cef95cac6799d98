"""What the commands that ask control have in common: where it is, which pipeline, and how to answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from viaduck_client import Client

MaybeFile = Annotated[
    list[Path] | None,
    typer.Option("-c", "--config", metavar="FILE", help="A configuration file, or a folder of them; may be repeated."),
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Control's address, instead of a file.")]
Pipeline = Annotated[str | None, typer.Option("--pipeline", metavar="NAME", help="Required if there are several.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, and nothing else on standard output.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done; exit code 1 if it fails.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="With --wait: how long.")]
IfMatch = Annotated[
    int | None,
    typer.Option("--if-match", metavar="VERSION", min=0, help="Only if it is still at this version; else exit code 2."),
]
Id = Annotated[str, typer.Argument(metavar="ID")]


@dataclass(frozen=True)
class Target:
    """A control service, and the pipelines that the file names; none where only an address is given."""

    client: Client
    named: tuple[str, ...]

    @property
    def pipelines(self) -> list[str]:
        return list(self.named) or self.client.pipelines()

    def pipeline(self, given: str | None) -> str:
        """The pipeline that the options select."""
        if given is not None:
            return given
        found = self.pipelines
        if len(found) != 1:
            raise typer.BadParameter(f"choose one of {', '.join(found) or 'none'}", param_hint="--pipeline")
        return found[0]


def target(config: list[Path] | None, url: str | None) -> Target:
    """Who is to be asked."""
    from services.cli.runtime.client import Control, control_of, token_of
    from services.cli.runtime.run_service import load_for

    if url is not None and not config:
        return Target(Control(url, token_of(None), keep_alive=False), ())
    if url is not None or not config:
        raise typer.BadParameter("give either a file or an address", param_hint="-c / --url")
    loaded = load_for(config)
    return Target(control_of(loaded.common, keep_alive=False), loaded.names)


def end(code: int) -> NoReturn:
    raise typer.Exit(code)
