"""Records a scene as a trace: every item that is sent, its answer, and what the destinations' snapshots then show."""

from __future__ import annotations

from collections import Counter

from shared.contracts.messages import Outcome, Progress, WorkItem
from shared.contracts.ranges import NOT_SEEDED
from tests.model.trace import Anything, Committed, answered, sent
from tests.world.lake import opened
from tests.world.scene import Scene
from tests.world.service_view import Receiver
from tests.world.stamps import Stamp, commits_of, parse


class Recorder:
    """``events`` is the trace so far."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._seen: Counter[str] = Counter()
        self._commits: Counter[str] = Counter()
        self.events: list[Anything] = []

    def send(self, one: Receiver, item: WorkItem) -> Progress:
        since = self._commits[item.key]
        self.events.append(sent(item))
        answer = self._scene.send(one, item)
        if answer.position != NOT_SEEDED or answer.outcome is Outcome.APPLIED:
            self._look(one)
        self.events.append(answered(answer, since))
        return answer

    def _look(self, one: Receiver) -> None:
        """Note the snapshots that have come since the last look, oldest first."""
        with opened(self._scene.con, one.promised.lake) as alias:
            commits = commits_of(self._scene.con, alias, one.promised.lake)
        key = one.desired.key
        for commit in commits:
            if commit.is_ours and commit.snapshot > self._seen[key]:
                self.events.append(committed(parse(commit)))
                self._commits[key] += 1
        self._seen[key] = commits[-1].snapshot


def committed(stamp: Stamp) -> Committed:
    """What a stamped snapshot tells."""
    return Committed.model_validate(
        {
            "destination": f"{stamp.pipeline}/{stamp.destination}",
            "kind": stamp.kind,
            "generation": stamp.generation,
            "after": stamp.after,
            "through": stamp.through,
            "item": stamp.item,
            "token": stamp.token,
            "snapshot": stamp.snapshot,
            "path": stamp.path,
            "looked": stamp.looked,
        }
    )
