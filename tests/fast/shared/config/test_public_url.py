"""``server.public_url``: one address of one host, or a mistake that says what to write."""

from __future__ import annotations

import pytest

from shared.config.public_url import read
from tests.fast.shared.config.conftest import MINIMAL, Mistaken


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://viaduck.example", "https://viaduck.example"),
        ("https://Viaduck.Example:443/", "https://viaduck.example"),
        ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
    ],
)
def test_an_address_is_its_scheme_host_and_port(text: str, shown: str) -> None:
    url = read(text)
    assert str(url) == shown
    assert url.is_origin(shown)
    assert url.is_host(shown.partition("://")[2])
    assert url.is_secure == shown.startswith("https")


WRONG = [
    "viaduck.example", "ftp://viaduck.example", "https://", "https://viaduck.example/below",
    "https://u:hunter2@viaduck.example",
    "https://viaduck.example?x", "https://viaduck.example#x", "https://evil example", "https://[", "https://a:99999", "https://a\\b",
    "//a", "https://a,b", "https://*.a",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_told_with_what_to_write_and_without_a_password(text: str) -> None:
    with pytest.raises(ValueError, match="write it like https://") as refused:
        read(text)
    assert "hunter2" not in str(refused.value)


FOREIGN = ["null", "", "https://viaduck.example.evil", "https://viaduck.example:8443", "http://viaduck.example"]


@pytest.mark.parametrize("origin", FOREIGN)
def test_another_page_is_not_ours(origin: str) -> None:
    assert not read("https://viaduck.example").is_origin(origin)


def test_a_mistake_is_told_by_its_key(mistakes_of: Mistaken) -> None:
    assert any(
        line.startswith("server.public_url: ")
        for line in mistakes_of(MINIMAL + "server: {public_url: viaduck.example}")
    )


def test_who_reads_metrics_is_one_of_three(mistakes_of: Mistaken) -> None:
    assert any("server.metrics" in line for line in mistakes_of(MINIMAL + "server: {metrics: everybody}"))
