"""Which actions a destination's page offers. Values in, values out."""

from __future__ import annotations

from services.control.model.lifecycle import Registered
from shared.contracts.messages import DesiredState


def permitted(held: Registered, *, parked: bool, failing: bool) -> tuple[str, ...]:
    """The actions that change something of a destination as it is now, in the order in which people look for them.

    ``parked``, ``failing``: what the last answers say of it.
    """
    if held.removing:
        return ("remove",)
    running, stopped = held.desired is DesiredState.RUNNING, held.desired is DesiredState.STOPPED
    wanted = {
        "edit": held.managed_by == "api",
        "pause": running,
        "resume": parked or held.desired is DesiredState.PAUSED,
        "stop": not stopped,
        "restart": stopped or failing,
        "reseed": True,
        "rewind": True,
        "remove": held.managed_by == "api",
    }
    return tuple(name for name, possible in wanted.items() if possible)
