"""A file's tree brought to the shape of a model: known keys, and text, numbers and booleans where they belong.

YAML reads ``NO`` as false, ``007`` as 7 and ``12:30`` as 750. Where text is expected such a word is taken as it was
written if it has one reading only, else refused: a tenant called NO must not silently become "false".
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from shared.config.config_errors import Mistakes, join
from shared.config.document import Plain, Tree
from shared.config.model import Config, Section
from shared.contracts.messages import SeedMode

REFUSED: Final = object()
"""Stands where a mistake was noted, so that a list keeps its numbering. No type of a model accepts it."""

NOT_IN_FILE = {"path", "reserved", "topic"}
FOLLOW_FROM_OTHERS = {"pipeline", "state_dir"}
MAY_BE_BLANK = {"name", "routing_value", "hours", "partitioned_by", "sorted_by"}
OTHER_SPELLINGS = {"replay": SeedMode.REPLAY.value}


def keys_of(model: type[Section]) -> dict[str, FieldInfo]:
    """A section's keys as a file spells them."""
    return {
        info.alias or name: info
        for name, info in model.model_fields.items()
        if not (model is Config and name in NOT_IN_FILE)
    }


def fit_section(tree: Tree, model: type[Section], path: str, mistakes: Mistakes) -> Any:
    """A section as keyword values of its model; what did not fit is ``REFUSED``, unknown keys are left out."""
    if _is_null(tree):
        return {}
    if not isinstance(tree, dict):
        return _refuse(
            mistakes, path, f"must be a mapping; write its keys ({', '.join(list(keys_of(model))[:4])} …) below it"
        )
    known = keys_of(model)
    fitted = {}
    for key, value in tree.items():
        if key in known:
            if _is_null(value) and known[key].is_required() and key not in FOLLOW_FROM_OTHERS:
                mistakes.note(join(path, key), "is required and has no value; write one")
            fitted[key] = _fit(value, known[key].annotation, join(path, key), mistakes)
        else:
            _note_unknown(key, tree, model, path, mistakes)
    return fitted


def _fit(tree: Tree, annotation: Any, path: str, mistakes: Mistakes) -> Any:
    kind = _without_none(annotation)
    if isinstance(kind, type) and issubclass(kind, Section):
        is_text = kind.text_key is not None and not isinstance(tree, (dict, list)) and not _is_null(tree)
        return fit_section({kind.text_key: tree} if is_text and kind.text_key else tree, kind, path, mistakes)
    if get_origin(kind) is tuple:
        return _fit_list(tree, get_args(kind)[0], path, mistakes)
    if get_origin(kind) is dict:
        return _fit_properties(tree, path, mistakes)
    return _fit_leaf(tree, kind, path, mistakes)


def _fit_list(tree: Tree, item: Any, path: str, mistakes: Mistakes) -> Any:
    is_sections = isinstance(item, type) and issubclass(item, Section)
    if is_sections and _is_null(tree):
        return []
    if not isinstance(tree, list):
        example = "each entry behind a dash of its own" if is_sections else "it in brackets, even if it is one"
        return _refuse(mistakes, path, f"must be a list; write {example}")
    if is_sections:
        return [_fit_entry(entry, item, join(path, number), mistakes) for number, entry in enumerate(tree)]
    return [_fit(entry, item, join(path, number), mistakes) for number, entry in enumerate(tree)]


def _fit_entry(tree: Tree, model: type[Section], path: str, mistakes: Mistakes) -> Any:
    if _is_null(tree):
        return _refuse(mistakes, path, "has nothing behind its dash; write its keys there, or remove the dash")
    return fit_section(tree, model, path, mistakes)


def _fit_properties(tree: Tree, path: str, mistakes: Mistakes) -> Any:
    if _is_null(tree):
        return {}
    if not isinstance(tree, dict):
        return _refuse(mistakes, path, "must be a mapping; write one NAME: value on each line below it")
    fitted = {key: _fit_text(value, join(path, key), mistakes, may_be_blank=True) for key, value in tree.items()}
    return {key: _as_software_spells(tree[key], value) for key, value in fitted.items()}


def _as_software_spells(tree: Tree, text: Any) -> Any:
    """A boolean among properties in lower case: no other program takes True."""
    return text.lower() if isinstance(tree, Plain) and tree.kind == "bool" and isinstance(text, str) else text


def _fit_leaf(tree: Tree, kind: Any, path: str, mistakes: Mistakes) -> Any:
    if _is_null(tree):
        return _refuse(mistakes, path, "has no value; write one, or leave the key out")
    if isinstance(tree, (dict, list)):
        what = "a mapping" if isinstance(tree, dict) else "a list"
        return _refuse(mistakes, path, f"is {what}; write a single value")
    if kind in NUMBERS:
        return NUMBERS[kind](tree, path, mistakes)
    key = path.rpartition(".")[2]
    text = _fit_text(tree, path, mistakes, may_be_blank=key in MAY_BE_BLANK)
    return OTHER_SPELLINGS.get(text, text) if kind is SeedMode and isinstance(text, str) else text


def _fit_text(tree: Tree, path: str, mistakes: Mistakes, *, may_be_blank: bool) -> Any:
    if isinstance(tree, str):
        if tree.strip() or may_be_blank:
            return tree
        return _refuse(mistakes, path, "is empty; write a value, or leave the key out")
    if not isinstance(tree, Plain) or tree.kind == "null":
        return _refuse(mistakes, path, "has no value that is text; write one, or leave the key out")
    text = _one_reading(tree)
    return _refuse(mistakes, path, MISREAD[tree.kind]) if text is None else text


MISREAD = {
    "bool": "is read as a boolean by YAML; put it in quotes, or write true or false",
    "int": "is read as another number than it looks by YAML; put it in quotes, or write plain decimal digits",
    "float": "is no plain decimal number; put it in quotes if the text is meant",
}

READINGS = {
    "bool": r"[Tt]rue|TRUE|[Ff]alse|FALSE",
    "int": r"-?(0|[1-9]\d*)",
    "float": r"-?(0|[1-9]\d*)\.\d+",
    "date": r".*",
}


def _one_reading(plain: Plain) -> str | None:
    """The text of a plain scalar, as it is written, if people and YAML read it alike; else None."""
    return plain.text if re.fullmatch(READINGS[plain.kind], plain.text) else None


def _fit_int(tree: Tree, path: str, mistakes: Mistakes) -> Any:
    text = _number_text(tree)
    if text is None or not re.fullmatch(r"-?(0|[1-9](_?\d){0,17})", text):
        return _refuse(mistakes, path, "must be a whole number; write it in decimal digits")
    return int(text)


def _fit_float(tree: Tree, path: str, mistakes: Mistakes) -> Any:
    text = _number_text(tree)
    if text is None or not re.fullmatch(r"-?\d{1,18}(\.\d{0,18})?|-?\.\d{1,18}", text):
        return _refuse(mistakes, path, "must be a number; write it in decimal digits, with a point if need be")
    return float(text)


def _number_text(tree: Tree) -> str | None:
    """Of a number, or of quoted text: Helm and envsubst leave quotes behind."""
    if isinstance(tree, Plain):
        return tree.text if tree.kind in ("int", "float") else None
    return tree.strip() if isinstance(tree, str) else None


def _fit_bool(tree: Tree, path: str, mistakes: Mistakes) -> Any:
    text = tree.text if isinstance(tree, Plain) and tree.kind == "bool" else tree
    if isinstance(text, str) and text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    return _refuse(mistakes, path, "must be true or false; write one of them")


NUMBERS: Mapping[Any, Callable[[Tree, str, Mistakes], Any]] = {int: _fit_int, float: _fit_float, bool: _fit_bool}


def _note_unknown(key: str, given: Mapping[str, Tree], model: type[Section], path: str, mistakes: Mistakes) -> None:
    place = join(path, key)
    known = list(keys_of(model))
    near = difflib.get_close_matches(key.lower().replace("-", "_"), known, 1)
    elsewhere = [home for home in SECTIONS_WITH.get(key, []) if home != path]
    if near:
        if near[0] not in given:
            mistakes.forgive(join(path, near[0]))
        mistakes.note(place, f"is not a key; did you mean {near[0]}?")
    elif elsewhere:
        mistakes.note(place, f"is not a key here; move it to {elsewhere[0] or 'the left edge of the file'}")
    else:
        mistakes.note(place, f"is not a key; remove it, or write one of: {', '.join(known)}")


def _sections_with() -> dict[str, list[str]]:
    """Every key of the model → the paths of the sections that know it, for keys that were written in another one."""
    found: dict[str, list[str]] = {}

    def visit(model: type[Section], path: str) -> None:
        for key, info in keys_of(model).items():
            found.setdefault(key, []).append(path)
            kind = _without_none(info.annotation)
            if isinstance(kind, type) and issubclass(kind, Section):
                visit(kind, join(path, key))

    visit(Config, "")
    return found


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (types.UnionType, Union):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return str if get_origin(annotation) is Literal else annotation


def _is_null(tree: Tree) -> bool:
    return isinstance(tree, Plain) and tree.kind == "null"


def _refuse(mistakes: Mistakes, path: str, text: str) -> object:
    mistakes.note(path, text)
    return REFUSED


SECTIONS_WITH = _sections_with()
