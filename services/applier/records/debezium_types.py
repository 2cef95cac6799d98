"""The types of Debezium and Kafka Connect in Avro, of which ``connect.name`` tells what a number or a record means.

A time without a zone in the database has none here either, whatever Avro's logical type beside it says: Connect has
only one name for both, and Debezium gives it to times without a zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.applier.records.avro_types import (
    DAY_US,
    TIMES,
    TIMESTAMPTZ,
    Node,
    Spell,
    decimal,
    kind_of,
    logical,
    spelled_decimal,
)

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
PRECISION, SCALE = "connect.decimal.precision", "scale"
UNKNOWN_PRECISION = 64
"""As Confluent's converter has it: a column of such decimals is a text."""

MOST_BYTES, MOST_SCALE = 1_700, 20_000
"""Of a decimal that is spelled out; of numbers with more than 4,300 digits Python makes no text."""


def _nanoseconds(value: int) -> Any:
    """Past midnight, with as many digits as they have."""
    us, rest = divmod(value, 1_000)
    if not 0 <= us < DAY_US:
        return value
    text = str(TIMES["time-micros", "long"][1](us))
    whole = text if "." in text else f"{text}.000000"
    return f"{whole}{rest:03d}" if rest else text


def _time(name: str, kind: str) -> tuple[str, Spell]:
    return TIMES[name, kind]


TYPES: dict[tuple[str, str], tuple[str, Spell | None]] = {
    ("io.debezium.time.Date", "int"): _time("date", "int"),
    ("io.debezium.time.Time", "int"): _time("time-millis", "int"),
    ("io.debezium.time.MicroTime", "long"): _time("time-micros", "long"),
    ("io.debezium.time.NanoTime", "long"): ("TIME", _nanoseconds),
    ("io.debezium.time.Timestamp", "long"): _time("local-timestamp-millis", "long"),
    ("io.debezium.time.MicroTimestamp", "long"): _time("local-timestamp-micros", "long"),
    ("io.debezium.time.NanoTimestamp", "long"): _time("local-timestamp-nanos", "long"),
    ("io.debezium.time.ZonedTimestamp", "string"): (TIMESTAMPTZ, None),
    ("io.debezium.data.Uuid", "string"): ("UUID", None),
    ("org.apache.kafka.connect.data.Date", "int"): _time("date", "int"),
    ("org.apache.kafka.connect.data.Time", "int"): _time("time-millis", "int"),
    ("org.apache.kafka.connect.data.Timestamp", "long"): _time("local-timestamp-millis", "long"),
}
"""By name and Avro's type. Texts that say what their column takes are as they are."""


def connect_type(node: Node, given: Mapping[str, Any]) -> Node:
    """The node with what its name in Connect says, where that is known; else with its logical type."""
    name, kind = given.get("connect.name"), kind_of(node)
    if not isinstance(name, str) or (node.spell is not None and kind not in ("bytes", "fixed", "record")):
        return logical(node, given)
    if (name, kind) in TYPES:
        column, spell = TYPES[name, kind]
        return replace(node, column=column, spell=spell)
    if name == VARIABLE_SCALE and _is_number_with_scale(node):
        return replace(node, column="VARCHAR", spell=_variable(node.spell))
    if name == DECIMAL and kind == "bytes" and given.get("logicalType") != "decimal":
        return _decimal_of_parameters(node, given.get("connect.parameters"))
    return logical(node, given)


def _is_number_with_scale(node: Node) -> bool:
    kinds = {name: kind_of(each) for name, each in node.fields.items() if not isinstance(each.schema, list)}
    return kinds == {"scale": "int", "value": "bytes"}


def _variable(otherwise: Spell | None) -> Spell:
    """A number whose scale is beside it; spelled as the record that it is if it is too long to be written out."""

    def spell(value: dict[str, Any]) -> Any:
        scale, unscaled = value["scale"], value["value"]
        if len(unscaled) > MOST_BYTES or abs(scale) > MOST_SCALE:
            return value if otherwise is None else otherwise(value)
        text = spelled_decimal(unscaled, max(scale, 0))
        return text if scale >= 0 or text == "0" else text + "0" * -scale

    return spell


def _decimal_of_parameters(node: Node, parameters: Any) -> Node:
    """As older converters tell it, in texts."""
    if not isinstance(parameters, Mapping):
        return node
    precision, scale = (parameters.get(each, other) for each, other in ((PRECISION, UNKNOWN_PRECISION), (SCALE, None)))
    return decimal(node, _whole(precision), _whole(scale))


def _whole(given: Any) -> Any:
    return int(given) if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10 else given
