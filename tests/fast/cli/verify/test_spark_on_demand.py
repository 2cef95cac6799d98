"""Of several pipelines' verification all share one Spark session, and one that has no lake to compare starts none."""

from __future__ import annotations

import signal
from typing import Any
from unittest.mock import Mock

import pytest

from services.cli.runtime.interruptible import Interruption
from services.cli.verify import command
from services.cli.verify.command import SparkOnDemand


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock()
    monkeypatch.setattr(command, "session", made)
    return made


def test_it_starts_once_and_ends_with_the_command(session: Mock) -> None:
    config: Any = object()
    with SparkOnDemand(Interruption()) as spark:
        first, second = spark.context(config), spark.context(config)
        assert [first, second] == [session.return_value] * 2
        session.return_value.stop.assert_not_called()
    session.assert_called_once_with(config, "viaduck-verify", daemon=command.DAEMON)
    session.return_value.stop.assert_called_once_with()


def test_none_is_started_where_none_is_needed(session: Mock) -> None:
    with SparkOnDemand(Interruption()):
        session.assert_not_called()


def test_it_ends_where_a_signal_came_while_it_started(session: Mock) -> None:
    interruption = Interruption()

    def interrupted(*_: object, **__: object) -> object:
        interruption.hear(signal.SIGTERM)
        return session.return_value

    session.side_effect = interrupted
    with pytest.raises(KeyboardInterrupt), SparkOnDemand(interruption) as spark:
        spark.context(Mock())
    session.return_value.stop.assert_called_once_with()
