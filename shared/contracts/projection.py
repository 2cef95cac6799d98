"""A model filled from other values: the one place that copies fields of equal names."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)


def project(model: type[Model], *sources: object, **others: Any) -> Model:
    """A ``model`` with ``others`` and, of its remaining fields, the attributes of ``sources`` that have their names.

    Where several sources have a name, the first one counts. Raises ``pydantic.ValidationError`` (a ``ValueError``) for
    a required field that none has, and for values that the model refuses.
    """
    found = dict(others)
    for name in model.model_fields.keys() - others.keys():
        holder = next((each for each in sources if hasattr(each, name)), None)
        if holder is not None:
            found[name] = getattr(holder, name)
    return model(**found)
