"""A moment of a catalog is in UTC, whatever the time zone of its server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared.lake.connection.statements import catalog_time

MOMENT = datetime(2024, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "said",
    [
        MOMENT.astimezone(timezone(timedelta(hours=-3, minutes=-30))),
        MOMENT.replace(tzinfo=None),
        "2024-01-01 10:00:00+00",
        "2024-01-01 15:30:00+05:30",
        "2024-01-01 10:00:00",
    ],
    ids=str,
)
def test_a_moment_is_in_utc_however_it_comes(said: datetime | str) -> None:
    assert catalog_time(said).isoformat() == "2024-01-01T10:00:00+00:00"
