"""What the commands that ask control have in common: where it is, which pipeline, and how to answer.

``@asks("pipeline", "json")`` gives a command the options ``-c``, ``--url``, ``--pipeline`` and ``--json``. What was
given for them is one ``CommandContext``, the command's first parameter; its other parameters are its own options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NoReturn, ParamSpec

import typer

from shared.runtime.garbage import importing

if TYPE_CHECKING:
    from viaduck_client import Client

_FILE = typer.Option(
    "-c", "--config", metavar="FILE", help="A configuration file, or a folder of them; may be repeated."
)
File = Annotated[list[Path], _FILE]
MaybeFile = Annotated[list[Path] | None, _FILE]
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
OfDestination = Annotated[str | None, typer.Option("--destination", metavar="ID", help="Only of this destination.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]

P = ParamSpec("P")
WAIT_S = 600.0


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


COMMON = {
    "config": [_option("config", MaybeFile, None)],
    "url": [_option("url", Url, None)],
    "pipeline": [_option("pipeline", Pipeline, None)],
    "wait": [_option("wait", Wait, False), _option("timeout", Timeout, WAIT_S)],
    "json": [_option("json", Json, False)],
}
"""Options that many commands have, in the order in which --help shows them."""


@dataclass(frozen=True)
class CommandContext:
    """A control service, and what of the common options was given.

    ``named``: the pipelines of the file; none where only an address is given. ``wait_s``: None without ``--wait``.
    """

    client: Client
    named: tuple[str, ...]
    given: str | None = None
    json: bool = False
    wait_s: float | None = None

    @property
    def pipelines(self) -> list[str]:
        """Those that the options select: the one given, those of the file, or all."""
        return [self.given] if self.given is not None else list(self.named) or self.client.pipelines()

    @property
    def pipeline(self) -> str:
        """The pipeline that the options select."""
        found = self.pipelines
        if len(found) != 1:
            raise typer.BadParameter(f"choose one of {', '.join(found) or 'none'}", param_hint="--pipeline")
        return found[0]


def asks(*names: str) -> Callable[[Callable[Concatenate[CommandContext, P], None]], Callable[..., None]]:
    """Give a command the options of these names beside ``-c`` and ``--url``. ``wait`` includes ``--timeout``."""
    common = [option for name, options in COMMON.items() if name in {"config", "url", *names} for option in options]

    def command(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
        def run(**options: Any) -> None:
            shared = {option.name: options.pop(option.name) for option in common}
            function(call(**shared), **options)  # type: ignore[call-arg]

        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *common)]
        )
        run.__name__, run.__doc__, run.__annotations__ = function.__name__, function.__doc__, {}
        return run

    return command


def call(
    config: list[Path] | None,
    url: str | None,
    pipeline: str | None = None,
    json: bool = False,
    wait: bool = False,
    timeout: float | None = None,
) -> CommandContext:
    """Finds out which control service is meant."""
    with importing():
        from services.cli.runtime.client import Control, control_of, token_of
        from services.cli.runtime.run_service import load_for

    wait_s = timeout if wait else None
    if url is not None and not config:
        return CommandContext(Control(url, token_of(None), keep_alive=False), (), pipeline, json, wait_s)
    if url is not None or not config:
        raise typer.BadParameter("give either a file or an address", param_hint="-c / --url")
    loaded = load_for(config)
    return CommandContext(control_of(loaded.common, keep_alive=False), loaded.names, pipeline, json, wait_s)


def given(**options: Any) -> dict[str, Any]:
    """Those that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def end(code: int) -> NoReturn:
    raise typer.Exit(code)
