"""The command line. Exit codes: 0 done, 1 something is parked, failed or different, 2 bad configuration or usage,
3 a dependency can't be reached, 130 and 143 after SIGINT and SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from shared.errors import ConfigError, DependencyError, ViaduckError

app = typer.Typer(
    name="viaduck",
    help="Keeps a shared DuckLake table in step with one DuckLake table per tenant: exactly, seconds behind.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
destination_app = typer.Typer(help="Destinations, as control knows them.", no_args_is_help=True)
app.add_typer(destination_app, name="destination")

File = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="The configuration file.")]
MaybeFile = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="The configuration file; its server is asked.")
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Control's address, instead of a file.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, and nothing else on standard output.")]


@app.command()
def up(
    config: File,
    once: Annotated[bool, typer.Option("--once", help="End when every destination is at the source's head.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="With --once: give up after this time.")
    ] = None,
    json: Json = False,
) -> None:
    """Run all three services, and a broker if none is configured."""
    if timeout is not None and not once:
        raise typer.BadParameter("goes with --once", param_hint="--timeout")
    from services.cli import up as command

    _end(command.run(config, once=once, timeout_s=timeout, as_json=json))


@app.command()
def reader(config: File) -> None:
    """Run a reader alone, for a deployment of its own."""
    _serve("reader", config)


@app.command()
def applier(config: File) -> None:
    """Run an applier alone, for a deployment of its own."""
    _serve("applier", config)


@app.command()
def control(config: File) -> None:
    """Run control alone, for a deployment of its own."""
    _serve("control", config)


@app.command()
def check(config: File) -> None:
    """Validate the file; reach every catalog, the broker, the registry."""
    _call("services.cli.check", _load(config))


@app.command()
def status(config: MaybeFile = None, url: Url = None, json: Json = False) -> None:
    """Show one line per destination."""
    from services.cli.status import list_all

    client, pipelines = _control(config, url)
    _end(list_all(client, pipelines, json))


@app.command()
def verify(
    config: File,
    destination: Annotated[
        list[str] | None, typer.Option("--destination", metavar="ID", help="Only this one; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Prove every destination equal to its slice of the source, with Spark."""
    _call("services.cli.verify", _load(config), destination or [], json)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", metavar="FOLDER", help="Where to play.")] = Path("viaduck-demo"),
) -> None:
    """Play with real data: what `make demo` runs."""
    _call("services.cli.demo", folder)


@destination_app.command("list")
def destination_list(config: MaybeFile = None, url: Url = None, json: Json = False) -> None:
    """Show one line per destination."""
    status(config, url, json)


@destination_app.command("show")
def destination_show(
    id: Annotated[str, typer.Argument(metavar="ID")],
    config: MaybeFile = None,
    url: Url = None,
    pipeline: Annotated[str | None, typer.Option(help="Needed where control has several.")] = None,
    json: Json = False,
) -> None:
    """Show everything about one destination."""
    from services.cli.status import show

    client, pipelines = _control(config, url)
    _end(show(client, pipeline or _only(pipelines or client.pipelines()), id, json))


def _only(pipelines: list[str]) -> str:
    if len(pipelines) != 1:
        raise typer.BadParameter(f"choose one of {', '.join(pipelines) or 'none'}", param_hint="--pipeline")
    return pipelines[0]


def _control(config: Path | None, url: str | None) -> tuple[Any, list[str]]:
    """A client, and the pipelines that a file names; none where only an address is given."""
    from services.cli.client import Control, control_of, token_of

    if (config is None) == (url is None):
        raise typer.BadParameter("give either a file or an address", param_hint="-c / --url")
    if url is not None:
        return Control(url, token_of(None)), []
    loaded = _load(config)
    return control_of(loaded), [loaded.pipeline]


def _load(file: Path | None) -> Any:
    from services.cli.dispatch import load_for

    return load_for(file or Path())


def _serve(name: str, file: Path) -> NoReturn:
    from services.cli.dispatch import run_service

    _end(run_service(name, file))


def _call(module: str, *arguments: Any) -> NoReturn:
    from services.cli.dispatch import call

    _end(call(module, *arguments))


def _end(code: int) -> NoReturn:
    raise typer.Exit(code)


def main() -> None:
    """Run the command line. What a user can get wrong ends with lines on standard error, never with a traceback."""
    try:
        app(prog_name="viaduck")
    except ConfigError as error:
        _fail(2, *error.mistakes)
    except DependencyError as error:
        _fail(3, str(error), error.hint)
    except ViaduckError as error:
        _fail(1, f"{error.type}: {error.message}", error.hint)


def _fail(code: int, *lines: str) -> NoReturn:
    for line in lines:
        if line:
            sys.stderr.write(f"{line}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
