"""The source is compacted, flushed, rewritten, checkpointed and expired while its ranges are read."""

from __future__ import annotations

from collections import Counter

from tests.torture.fault import Done
from tests.torture.rig import FaultRig
from tests.world.upkeep import Chore, Upkeep

CHORES = (Chore.FLUSH, Chore.MERGE_FILES, Chore.REWRITE, Chore.CHECKPOINT, Chore.EXPIRE)
KEPT_SNAPSHOTS = 6
SETTLE_EVERY = 20


def maintained_while_read(rig: FaultRig, count: int) -> Done:
    done: Done = Counter()
    for number in range(count):
        rig.step()
        chore = rig.rng.choice(CHORES)
        rig.maintain(Upkeep(chore, KEPT_SNAPSHOTS))
        done[chore] += 1
        if number % SETTLE_EVERY == 0:
            rig.wait_until_exact()
    return done
