"""When a process searches for garbage."""

from __future__ import annotations

import gc

import pytest

from shared.runtime.garbage import importing


def test_nothing_is_searched_while_modules_are_imported_and_everything_is_afterwards() -> None:
    assert gc.isenabled()
    with importing():
        assert not gc.isenabled()
        with importing():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_import_that_fails_leaves_the_search_on() -> None:
    with pytest.raises(ImportError), importing():
        raise ImportError("broken")
    assert gc.isenabled()
