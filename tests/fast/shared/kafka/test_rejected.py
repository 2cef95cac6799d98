"""The headers of rejected records: a record's own are kept byte for byte, and anyone may have written any of them."""

from __future__ import annotations

import pytest

from shared.kafka.rejected import RejectedOrigin, WireHeaders, reason_headers, redriven_headers, told_apart

ORIGIN = RejectedOrigin("not_json", "the value is not JSON", "clicks", 3, 2**40, "2026-11-26T05:00:00+00:00")
OWN: WireHeaders = [("trace", b"\xff\x00"), ("trace", None), ("viaduck-reason", b"mine"), ("", b"")]


def test_what_was_put_behind_a_records_own_headers_is_told_apart_from_them() -> None:
    assert told_apart([*OWN, *reason_headers(ORIGIN)]) == (OWN, ORIGIN)
    assert told_apart(reason_headers(ORIGIN)) == ([], ORIGIN)


def test_a_record_that_was_sent_again_and_rejected_again_has_no_trace_of_the_first_time() -> None:
    once = [*OWN, *redriven_headers(ORIGIN, "olga")]
    assert told_apart([*once, *reason_headers(ORIGIN)]) == (OWN, ORIGIN)


@pytest.mark.parametrize("headers", [None, [], {}, OWN, reason_headers(ORIGIN)[1:], reason_headers(ORIGIN)[::-1]])
def test_other_headers_say_nothing(headers: WireHeaders | None) -> None:
    assert told_apart(headers) == (list(headers or []), None)


@pytest.mark.parametrize("number", [b"", b"-1", b"1e3", b"x", "٣".encode(), b"9" * 19, b"9" * 30, b"\xff", None])
def test_a_place_that_is_none_says_nothing(number: bytes | None) -> None:
    for name in ("viaduck-partition", "viaduck-offset"):
        forged = [(each, number if each == name else value) for each, value in reason_headers(ORIGIN)]
        assert told_apart(forged)[1] is None


def test_text_that_is_not_utf8_is_escaped() -> None:
    forged: WireHeaders = [("viaduck-reason", b"\xff"), *reason_headers(ORIGIN)[1:]]
    _, origin = told_apart(forged)
    assert origin is not None
    assert origin.reason == "\\xff"
