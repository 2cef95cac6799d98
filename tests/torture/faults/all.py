"""The fault matrix: every fault by its name, with the counts of a full run and of the tiers of tests."""

from __future__ import annotations

from tests.torture.fault import Fault
from tests.torture.faults import (
    broker,
    catalogs,
    clocks,
    evolve,
    expiry,
    frozen,
    memory,
    messages,
    network,
    operators,
    partitions,
    processes,
    source_topic,
    unusable,
    upkeep,
)

FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill", "SIGKILL at each of nine points", processes.killed_at_points, full=50, brief=1),
        Fault("zombie", "SIGSTOP past the session timeout, another takes over, SIGCONT",
              processes.frozen_until_replaced, full=100, brief=1),
        Fault("replay", "items doubled, shuffled, of an earlier generation, from offset 0",
              messages.replayed, full=10_000, brief=100, usual=50),
        Fault("broker-restart", "broker killed and started", broker.killed_and_restarted, full=50, brief=1),
        Fault("broker-wipe", "broker wiped under running services", broker.wiped, full=20, brief=1),
        Fault("topics", "all topics deleted under running services", broker.topics_deleted, full=20, brief=1),
        Fault("lost-commit", "acknowledgement of the catalog's COMMIT lost, or appliers cut off with COMMIT on its way",
              catalogs.commits_unheard, full=200, brief=3, durable=True),
        Fault("postgres", "Postgres restarted, killed, cut off, silent; locks held; data path not writable",
              catalogs.postgres_in_trouble, full=50, brief=7, durable=True),
        Fault("network",
              "Kafka, the catalogs and the registry slow, reset, cut, silent, refused, broken off in mid-message",
              network.disturbed, full=120, brief=6),
        Fault("upkeep", "source flushed, merged, rewritten, checkpointed, expired while it is read",
              upkeep.maintained_while_read, full=300, brief=10, usual=5),
        Fault("expire", "destinations expired beside zombies, the source beside paused destinations and past them",
              expiry.expired_beside_who_waits, full=150, brief=3),
        Fault("evolve", "columns changed with rows and without beside kills at nine points, zombies and lost COMMITs",
              evolve.altered_under_faults, full=300, brief=3, durable=True),
        Fault("scale", "appliers join and leave under load, 1 → 4 → 2",
              processes.coming_and_going, full=1_800, brief=20, by_clock=True),
        Fault("poison", "garbage, huge and wrong-version messages on every topic",
              messages.poisoned, full=1_000, brief=60, usual=30),
        Fault("tenants", "tenants added and removed over REST at random, while the source changes",
              operators.tenants_added_and_removed, full=500, brief=20, usual=10),
        Fault("freeze", "SIGSTOP for 5 to 30 s while broker, source or registry is silent, then a wipe",
              frozen.frozen_in_silence, full=50, brief=1),
        Fault("partitions", "partitions added to work and destinations while tenants come, go and begin anew",
              partitions.added, full=50, brief=1),
        Fault("unusable", "a REST pipeline's variable missing or catalog gone, and services start again",
              unusable.left_alone, full=50, brief=1),
        Fault("amnesia", "registry lost, or an older copy restored, or the broker wiped and control restarted",
              memory.lost, full=50, brief=1),
        Fault("source-topic",
              "a source topic written under kills and zombies, in open and aborted transactions, with more partitions;"
              " deleted and made again; past its retention", source_topic.landed, full=700, brief=6),
        Fault("clock", "the clock of one service jumps an hour", clocks.jumped, full=20, brief=3,
              shown=False),
    )
}  # fmt: skip
