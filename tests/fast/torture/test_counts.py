"""How often each tier plays a fault."""

from __future__ import annotations

import pytest

from tests.torture.faults.all import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_the_usual_run_plays_a_fault_at_least_half_as_often_as_the_matrix(name: str) -> None:
    fault = FAULTS[name]
    assert fault.count(whole=True) == fault.brief
    assert fault.brief / 2 <= fault.count(whole=False) <= fault.brief
