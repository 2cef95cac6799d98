"""The command line. Exit codes: 0 done, 1 something is parked, failed or different, 2 bad configuration or usage,
3 a dependency can't be reached, 130 and 143 after SIGINT and SIGTERM."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from services.cli.commands import destination as destination_app
from services.cli.commands import operation, proposal, token, work
from services.cli.commands import pipeline as pipeline_app
from services.cli.commands import source as source_app
from services.cli.commands.options import CommandContext, File, Json, Pipeline, asks
from services.cli.output.sanitize import legible_lines
from shared.contracts.errors import ConfigError, DependencyError, ViaduckError
from shared.runtime.full_disk import full_disk
from shared.runtime.garbage import importing, spare_what_exists

app = typer.Typer(
    name="viaduck",
    help="Keeps a shared DuckLake table in step with one DuckLake table per tenant: exactly, seconds behind.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(destination_app.app, name="destination")
app.add_typer(operation.app, name="operation")
app.add_typer(pipeline_app.app, name="pipeline")
app.add_typer(proposal.app, name="proposal")
app.add_typer(source_app.app, name="source")
app.add_typer(token.app, name="token")
app.add_typer(work.app, name="work")


def _show_version(wanted: bool) -> None:
    if wanted:
        from shared.runtime.version import build_version

        print(f"viaduck {build_version()}")
        raise typer.Exit


@app.callback()
def about(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Keeps a shared DuckLake table in step with one DuckLake table per tenant: exactly, seconds behind."""


@app.command()
def up(
    config: File,
    once: Annotated[bool, typer.Option("--once", help="Exit when every destination is at the source's head.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="With --once: give up after this time.")
    ] = None,
    json: Json = False,
) -> None:
    """Run all three services, and a broker if none is configured."""
    if timeout is not None and not once:
        raise typer.BadParameter("goes with --once", param_hint="--timeout")
    with importing():
        from services.cli.up import command

    _end(command.run(config, once=once, timeout_s=timeout, as_json=json))


@app.command()
def reader(
    config: File,
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", metavar="NAME", help="Only this pipeline; else one process per pipeline."),
    ] = None,
) -> None:
    """Run a reader alone, for a deployment of its own."""
    _serve("reader", config, pipeline)


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
    _call("services.cli.commands.check", _load(config))


@app.command()
@asks("json")
def status(call: CommandContext) -> None:
    """Show one line per destination."""
    with importing():
        from services.cli.output.status_table import list_all

    _end(list_all(call.client, call.named, call.json))


@app.command()
def verify(
    config: File,
    destination: Annotated[
        list[str] | None, typer.Option("--destination", metavar="ID", help="Only this one; may be repeated.")
    ] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", metavar="NAME", help="Only this one's.")] = None,
    all_snapshots: Annotated[
        bool, typer.Option("--all-snapshots", help="Every retained snapshot of each destination, too.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="With --all-snapshots: those since 2026-03-01T00:00:00Z."),
    ] = None,
    json: Json = False,
) -> None:
    """Prove every destination equal to its slice of the source, with Spark."""
    from services.cli.commands.verify_options import past

    asked = past(all_snapshots=all_snapshots, since=since)
    _call("services.cli.verify.command", _load(config), destination or [], json, pipeline, asked)


class DemoKind(StrEnum):
    """What the demo's source is."""

    LAKE = "lake"
    KAFKA = "kafka"


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", metavar="FOLDER", help="Where to play.")] = Path("viaduck-demo"),
    kind: Annotated[DemoKind, typer.Option("--kind", help="What the source is.")] = DemoKind.LAKE,
    bootstrap_servers: Annotated[
        str, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="With --kind kafka: your broker.")
    ] = "localhost:9092",
) -> None:
    """Play with real data: what `make demo` runs."""
    if kind is DemoKind.KAFKA:
        _call("viaduck_demo.topic_command", folder, bootstrap_servers)
    _call("viaduck_demo.command", folder)


@app.command("demo-source")
def demo_source(
    config: File,
    pipeline: Pipeline = None,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0, help="Between two commits.")] = 2.0,
    commits: Annotated[
        int | None,
        typer.Option(
            "--commits", metavar="NUMBER", min=1, help="Exit after this number of commits; by default, never."
        ),
    ] = None,
) -> None:
    """Play the demo's flights into the source of a file: a workload for a deployment on trial."""
    _call("viaduck_demo.source", _load(config).of(pipeline), every, commits)


def _load(places: list[Path]) -> Any:
    with importing():
        from services.cli.runtime.run_service import load_for

    return load_for(places)


def _serve(name: str, places: list[Path], pipeline: str | None = None) -> NoReturn:
    with importing():
        from services.cli.runtime.run_service import run_service

    _end(run_service(name, places, pipeline))


def _call(module: str, *arguments: Any) -> NoReturn:
    with importing():
        from services.cli.runtime.run_service import call

    _end(call(module, *arguments))


def _end(code: int) -> NoReturn:
    raise typer.Exit(code)


def main() -> None:
    """Run the command line. What a user can get wrong ends with lines on standard error, never with a traceback."""
    try:
        try:
            app(prog_name="viaduck")
        finally:
            sys.stdout.flush()
            spare_what_exists()
    except OSError as error:
        full = full_disk(error, "standard output")
        if full is None:
            raise
        _forget_output()
        _fail(3, str(full), full.hint)
    except ConfigError as error:
        _fail(2, *error.mistakes)
    except DependencyError as error:
        _fail(3, str(error), error.hint)
    except ViaduckError as error:
        _fail(1, f"{error.type}: {error.message}", error.hint)
    except Exception as error:
        _explain(error)
        raise


def _explain(error: Exception) -> None:
    """End with what control has said, if that is what it is. `--help` has no need of an HTTP client."""
    from viaduck_client import ClientError, Unavailable

    if isinstance(error, ClientError):
        _fail(3 if isinstance(error, Unavailable) else 2, *str(error).splitlines(), error.hint)


def _forget_output() -> None:
    """What could not be written is tried again at the end of the process, and would make another exit code of ours."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(code: int, *lines: str) -> NoReturn:
    for line in lines:
        if line:
            sys.stderr.write(f"{legible_lines(line)}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
