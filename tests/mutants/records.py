"""Mistakes with what records become."""

from __future__ import annotations

from collections.abc import Iterable

from services.applier.records import conversions, decoding, examination, parse, readable, routing
from services.applier.records.inference import InferredKind
from services.applier.records.record_batch import RecordBatch
from services.applier.records.staging import Staging
from tests.mutants.mistake import Mistake, put

FOLDER = "tests/fast/applier/records"
ANY = f"{FOLDER}/test_any_records.py"


def _rescue_nothing() -> None:
    put(examination, "rescue", lambda *_: {})


def _by_place() -> None:
    put(Staging, "_alike", lambda _: "map_values(m) AS at_places, map_keys(m) = $usual OR true AS alike")


def _whatever_casts() -> None:
    put(conversions, "_integer", lambda raw, type: f"try_cast({raw} AS {type})")  # noqa: A006


def _any_double() -> None:
    put(conversions, "_double", lambda _, double: double)


def _text_of_anything() -> None:
    put(conversions, "_text", lambda raw: f"json_extract_string({raw}, '$')")


def _first_of_a_key() -> None:
    newest = parse.RecordParser._newest
    put(parse.RecordParser, "_newest", lambda self: newest(self).replace("o DESC", "o"))


def _nothing_deletes() -> None:
    newest = parse.RecordParser._newest
    put(parse.RecordParser, "_newest", lambda self: newest(self).replace("WHERE NOT nothing", ""))


def _every_part_begins_anew() -> None:
    right = readable.arrow_table
    put(readable, "arrow_table", lambda batch, form, without, _: right(batch, form, without))


def _columns_change_unseen() -> None:
    right = parse.RecordParser._adopt
    put(parse.RecordParser, "_adopt", lambda self: not self._lets_go and right(self))


def _any_id_will_do() -> None:
    right = decoding._known
    put(decoding, "_known", lambda find, schemas: right(find, None if find is decoding.json_as_it_is else schemas))


def _bad_ones_stay() -> None:
    put(examination, "refused", lambda *_: {})


def _land_what_moved_on() -> None:
    def of(routed: routing.Routed, value: str) -> RecordBatch | None:
        places = routed.places.get(value)
        return None if places is None else routed.batch.taken(places)

    put(routing.Routed, "of", of)


def _case_tells_columns_apart() -> None:
    def new_columns(
        found: Iterable[tuple[str, InferredKind]], taken: Iterable[str], room: int
    ) -> list[tuple[str, InferredKind]]:
        names = set(taken)
        chosen: list[tuple[str, InferredKind]] = [
            (n, kind) for n, kind in found if kind is not InferredKind.NOTHING and n not in names
        ]
        return chosen[:room]

    put(parse, "new_columns", new_columns)


MISTAKES = (
    Mistake("rescue-nothing", "what fits no column is dropped", _rescue_nothing, (ANY, "-k", "its_record")),
    Mistake("by-place", "every record has the first one's fields in its order", _by_place,
            (ANY, "-k", "its_record")),
    Mistake("whatever-casts", "a fraction becomes an integer", _whatever_casts, (ANY, "-k", "its_record")),
    Mistake("any-double", "an integer becomes the double beside it", _any_double, (ANY, "-k", "its_record")),
    Mistake("text-of-anything", "a number becomes a text", _text_of_anything, (ANY, "-k", "its_record")),
    Mistake("first-of-a-key", "the first record of a key wins", _first_of_a_key, (ANY, "-k", "split")),
    Mistake("nothing-deletes", "a record without a value leaves a row of its key", _nothing_deletes,
            (ANY, "-k", "split")),
    Mistake("part-begins-anew", "a bad record of a later part takes another one's place", _every_part_begins_anew,
            (f"{FOLDER}/test_parts.py", "-k", "same_rows")),
    Mistake("columns-change-unseen", "new fields are rescued where records were let go", _columns_change_unseen,
            ("tests/fast/applier/worker/test_topic_reader.py::test_records_that_change_the_columns_are_read_again",)),
    Mistake("any-id-will-do", "JSON lands whose schema the registry does not know", _any_id_will_do,
            (f"{FOLDER}/test_avro.py", "-k", "json_has_to_name")),
    Mistake("bad-ones-stay", "a record that is no object lands as an empty row", _bad_ones_stay,
            (f"{FOLDER}/test_bad_input.py", "-k", "no_object")),
    Mistake("moved-on-lands", "a record lands though a newer one of its key in the range went elsewhere",
            _land_what_moved_on,
            ("tests/fast/applier/records/test_key_owners.py::test_a_key_that_went_on_leaves_no_record_behind",)),
    Mistake("case-tells-apart", "columns differ by case alone", _case_tells_columns_apart,
            (f"{FOLDER}/test_bad_input.py", "-k", "by_case_alone")),
)  # fmt: skip
