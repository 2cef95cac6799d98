"""Imported by a process before it imports the services: what is forked from it has the points of ``plant``."""

from __future__ import annotations

from services.cli import main as command_line
from tests.torture.plant import sitecustomize

_main = command_line.main


def main() -> None:
    sitecustomize.follow_clock()  # a thread, which no fork would have
    _main()


sitecustomize.plant()
command_line.main = main
