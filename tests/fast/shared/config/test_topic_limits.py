"""Which brokers a list names, as librdkafka reads it."""

from __future__ import annotations

import pytest

from shared.config.limits import LakeLimits
from shared.config.topic_limits import hosts, refusals


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("a:9092", ["a"]),
        ("a:9092, b", ["a", "b"]),
        ("SASL_SSL://a:9092,PLAINTEXT://b:1", ["a", "b"]),
        ("[::1]:9092,SSL://[fe80::1]", ["::1", "fe80::1"]),
        ("", []),
        (",", []),
    ],
)
def test_hosts_are_told_from_ports_and_protocols(servers: str, found: list[str]) -> None:
    assert hosts(servers) == found


def test_hosts_are_compared_whatever_their_case() -> None:
    limits = LakeLimits(hosts=("*.internal",))
    assert dict(refusals({"bootstrap_servers": "A.INTERNAL:1"}, limits)) == {}
    assert set(dict(refusals({"bootstrap_servers": "a.internal.evil:1"}, limits))) == {"bootstrap_servers"}


@pytest.mark.parametrize("wrong", [None, [], 7, {"properties": []}, {"format": "avro"}, {"bootstrap_servers": 7}])
def test_what_has_another_shape_is_left_to_the_rules_of_shapes(wrong: object) -> None:
    assert dict(refusals(wrong if isinstance(wrong, dict) else {}, LakeLimits())) == {}
