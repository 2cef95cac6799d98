"""Which tests `make check`, `make test`, `make test-all` and `make test-matrix` run: tiers, each a part of the next.

===========  ===========================================================================================================
check        no socket is connected or bound, no process is started (``Guard`` forbids both), and no test takes more
             than ``QUICK_S`` of CPU unless it is marked ``slow``; of tests on lakes those in ``ONE_BY_ONE``
test         check, the other tests of ``tests/fast`` but the longest, every second of those on lakes in SQLite files
             that test-all has, 20 random histories, one `up --once`, one fault, the smallest models
test-all     every test but the long ones of ``NIGHTLY``; where several differ in nothing but ``SETTINGS`` (the kind of
             catalog, the way to commit), one of them; of a property that is tried in parts the first ``PARTS``
test-matrix  every test in every setting
===========  ===========================================================================================================

A test's tier is that of the longest entry of ``TIERS`` that its id begins with, unless it differs from others by its
setting alone: settings take turns by a checksum of the test's name, so that each has its share of all tests. What is
in check with its setting stays there, whatever the turn.
"""

from __future__ import annotations

import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import pytest

from tests.one_by_one import ONE_BY_ONE

QUICK_S = 1.0
"""Seconds of CPU, since those on the clock tell as much of a busy machine as of a test."""


class Tier(IntEnum):
    CHECK = 1
    TEST = 2
    ALL = 3
    MATRIX = 4


WITHIN_THE_PROCESS = (
    "tests/fast/applier/model/test_admission.py",
    "tests/fast/applier/records/test_any_events.py",
    "tests/fast/applier/records/test_any_records.py",
    "tests/fast/applier/records/test_avro.py",
    "tests/fast/applier/records/test_bad_input.py",
    "tests/fast/applier/records/test_debezium.py",
    "tests/fast/applier/records/test_debezium_avro.py",
    "tests/fast/applier/records/test_inference.py",
    "tests/fast/applier/records/test_keys.py",
    "tests/fast/applier/records/test_parse.py",
    "tests/fast/applier/records/test_parts.py",
    "tests/fast/applier/records/test_protobuf.py",
    "tests/fast/applier/records/test_record_batch.py",
    "tests/fast/applier/records/test_record_format.py",
    "tests/fast/applier/records/test_routed_keys_of_a_registry.py",
    "tests/fast/applier/model/test_immediate_answers.py",
    "tests/fast/applier/worker/test_answer_files.py",
    "tests/fast/applier/worker/test_task_claim.py",
    "tests/fast/applier/apply/cursor/test_decide.py",
    "tests/fast/applier/test_destination_cache.py",
    "tests/fast/applier/model/test_grouping.py",
    "tests/fast/applier/model/test_offsets.py",
    "tests/fast/applier/model/test_upkeep_exclusion.py",
    "tests/fast/applier/test_upkeep_planner.py",
    "tests/fast/applier/test_health_sweep.py",
    "tests/fast/applier/test_outbox.py",
    "tests/fast/applier/apply/source/test_parcels.py",
    "tests/fast/applier/apply/source/test_streamed.py",
    "tests/fast/applier/apply/maintenance/test_table_wear.py",
    "tests/fast/applier/worker/test_explanation.py",
    "tests/fast/applier/worker/test_in_flight.py",
    "tests/fast/applier/worker/test_portions.py",
    "tests/fast/applier/worker/test_same_routing.py",
    "tests/fast/applier/worker/test_turn.py",
    "tests/fast/applier/worker/test_unrouted.py",
    "tests/fast/applier/worker/test_wide_rows.py",
    "tests/fast/applier/worker/test_worker_memory.py",
    "tests/fast/applier/worker/test_adaptive_concurrency.py",
    "tests/fast/shared/contracts/test_latest.py",
    "tests/fast/shared/contracts/test_positions.py",
    "tests/fast/shared/contracts/test_projection.py",
    "tests/fast/shared/lake/connection/test_catalog_time.py",
    "tests/fast/shared/config/test_catalogs.py",
    "tests/fast/shared/config/test_copies.py",
    "tests/fast/shared/config/test_deployment.py",
    "tests/fast/shared/config/test_documentation.py",
    "tests/fast/shared/config/test_lakes_that_travel.py",
    "tests/fast/shared/config/test_loading.py",
    "tests/fast/shared/config/test_table_layout.py",
    "tests/fast/shared/config/test_mistakes.py",
    "tests/fast/shared/config/test_names.py",
    "tests/fast/shared/config/test_original.py",
    "tests/fast/shared/config/test_original_corpus.py",
    "tests/fast/shared/config/test_overlap.py",
    "tests/fast/shared/config/test_partition.py",
    "tests/fast/shared/config/test_upkeep.py",
    "tests/fast/shared/config/test_public_url.py",
    "tests/fast/shared/config/test_secrets.py",
    "tests/fast/shared/config/test_topics.py",
    "tests/fast/shared/config/test_strangers.py",
    "tests/fast/shared/config/test_store_access.py",
    "tests/fast/shared/config/test_strangers_identities.py",
    "tests/fast/reader/planner/test_catch_up.py",
    "tests/fast/reader/planner/test_scheduling.py",
    "tests/fast/reader/planner/test_flushing.py",
    "tests/fast/reader/planner/test_log_positions.py",
    "tests/fast/reader/planner/test_compaction.py",
    "tests/fast/reader/planner/test_frontier.py",
    "tests/fast/reader/planner/test_in_flight_limits.py",
    "tests/fast/reader/messaging/test_message_decoder.py",
    "tests/fast/reader/source/test_record_tally.py",
    "tests/fast/reader/planner/test_change_index.py",
    "tests/fast/reader/test_loop.py",
    "tests/fast/reader/messaging/test_discovery.py",
    "tests/fast/reader/planner/test_plan.py",
    "tests/fast/reader/messaging/test_status_repetition.py",
    "tests/fast/reader/messaging/test_partitioner.py",
    "tests/fast/shared/runtime/test_background.py",
    "tests/fast/shared/runtime/test_backoff.py",
    "tests/fast/shared/runtime/test_garbage.py",
    "tests/fast/bench/test_bench.py",
    "tests/fast/bench/test_evolve.py",
    "tests/fast/bench/test_report.py",
    "tests/fast/test_architecture.py",
    "tests/fast/test_class_names.py",
    "tests/fast/test_code_blocks.py",
    "tests/fast/test_mutants.py",
    "tests/fast/test_shell_blocks.py",
    "tests/fast/test_documentation.py",
    "tests/fast/shared/lake/columns/test_identity.py",
    "tests/fast/shared/lake/connection/test_distance.py",
    "tests/fast/shared/lake/connection/test_engine.py",
    "tests/fast/shared/lake/test_failure.py",
    "tests/fast/shared/lake/test_stamp.py",
    "tests/fast/shared/lake/checks/test_layout_keys.py",
    "tests/fast/shared/runtime/test_metrics.py",
    "tests/fast/world/test_oracle.py",
    "tests/fast/world/test_topic_oracle.py",
    "tests/fast/shared/lake/changes/test_changed_files.py",
    "tests/fast/shared/lake/direct/test_columns.py",
    "tests/fast/shared/lake/direct/test_files.py",
    "tests/fast/shared/lake/direct/test_positions.py",
    "tests/fast/shared/lake/direct/test_statistics.py",
    "tests/fast/shared/lake/attached/test_pool.py",
    "tests/fast/applier/test_backlog.py",
    "tests/fast/applier/test_known_positions.py",
    "tests/fast/reader/source/test_source_poller.py",
    "tests/fast/reader/source/test_unrouted_values.py",
    "tests/fast/control/view/test_destination_status.py",
    "tests/fast/control/view/test_topic_lag.py",
    "tests/fast/cli/verify/test_topic_proof.py",
    "tests/fast/shared/config/test_topic_limits.py",
    "tests/fast/reader/source/test_waiting_records.py",
    "tests/fast/control/view/test_frontier.py",
    "tests/fast/control/view/test_observed_state.py",
    "tests/fast/control/view/test_retention.py",
    "tests/fast/cli/expire/test_plan.py",
    "tests/fast/control/model/test_lifecycle.py",
    "tests/fast/control/model/test_policy.py",
    "tests/fast/control/model/test_recovery.py",
    "tests/fast/control/web/test_guard.py",
    "tests/fast/control/operations/test_work_items.py",
    "tests/fast/shared/lake/connection/test_spill.py",
    "tests/fast/control/page/test_pages.py",
    "tests/fast/control/operations/test_discovery.py",
    "tests/fast/control/operations/test_long_operations.py",
    "tests/fast/control/operations/test_column_following.py",
    "tests/fast/control/operations/test_data_paths.py",
    "tests/fast/control/operations/test_lake_looks.py",
    "tests/fast/control/operations/test_reconciler.py",
    "tests/fast/control/test_reconciler_thread.py",
    "tests/fast/control/test_progress_consumer.py",
    "tests/fast/applier/test_metrics_recorder.py",
    "tests/fast/applier/model/test_file_agreement.py",
    "tests/fast/applier/apply/test_attempts.py",
    "tests/fast/applier/apply/source/test_refusals.py",
    "tests/fast/reader/planner/test_counted_changes.py",
    "tests/fast/shared/kafka/test_signing.py",
    "tests/fast/shared/kafka/test_settings.py",
    "tests/fast/shared/kafka/test_admin.py",
    "tests/fast/shared/kafka/test_topic_log.py",
    "tests/fast/shared/kafka/test_partition_counts.py",
    "tests/fast/demo/test_folder.py",
    "tests/fast/demo/test_view.py",
    "tests/fast/cli/output/test_sanitize.py",
    "tests/fast/cli/output/test_destination_schema.py",
    "tests/fast/cli/up/test_outcome.py",
    "tests/fast/cli/runtime/test_console.py",
    "tests/fast/cli/verify/test_report.py",
    "tests/fast/test_prose.py",
    "tests/fast/test_reference.py",
    "tests/fast/test_statements.py",
    "tests/fast/torture/test_counts.py",
    "tests/fast/torture/test_torture.py",
    "tests/fast/world/test_world.py",
)
"""Files of the tier check, looked at one by one."""

BESIDE = (
    "tests/fast/control/page/test_pages.py::test_every_page_of_five_thousand_is_small",
    "tests/fast/control/web/test_guard.py::test_an_odd_body_is_the_sender_s_mistake_and_its_answer_is_short",
    "tests/fast/shared/lake/connection/test_spill.py::test_what_a_killed_process_left_is_swept_and_what_is_in_use_or_just_made_is_not",
    "tests/fast/shared/lake/connection/test_spill.py::test_a_fork_has_a_folder_of_its_own",
    "tests/fast/shared/config/test_catalogs.py::test_postgres_itself_understands_a_password_full_of_quotes",
    "tests/fast/shared/config/test_copies.py::test_what_is_accepted_as_json_is_read_from_its_copy_as_the_same",
    "tests/fast/shared/config/test_mistakes.py::test_thousands_of_destinations_are_checked_against_each_other",
    "tests/fast/shared/config/test_secrets.py::test_a_hundred_thousand_characters_of_anything_take_less_than_a_second",
    "tests/fast/shared/config/test_strangers.py::test_a_lake_of_the_file_has_the_password_of_its_surroundings",
    "tests/fast/shared/config/test_strangers.py::test_a_lake_of_the_file_without_keys_has_those_of_its_surroundings",
    "tests/fast/shared/config/test_strangers.py::test_an_instance_holds_no_key_that_no_lake_gave_it",
    "tests/fast/shared/config/test_strangers.py::test_no_key_of_this_machine_arrives_at_a_store_that_a_stranger_named",
    "tests/fast/shared/config/test_strangers.py::test_no_password_of_this_machine_arrives_at_a_host_that_a_message_names",
    "tests/fast/reader/planner/test_plan.py::test_ten_thousand_untouched_destinations_cost_no_item",
    "tests/fast/reader/planner/test_plan.py::test_whoever_waits_is_not_looked_at_in_every_turn",
    "tests/fast/test_documentation.py::test_every_path_of_the_interface_is_documented",
    "tests/fast/world/test_oracle.py::test_a_maintenance_that_loses_a_row_is_found",
    "tests/fast/world/test_oracle.py::test_a_range_may_begin_after_snapshots_that_changed_nothing_of_the_destination",
    "tests/fast/world/test_oracle.py::test_an_exact_destination_has_no_findings",
    "tests/fast/world/test_oracle.py::test_destinations_that_share_a_lake_are_told_apart",
    "tests/fast/world/test_oracle.py::test_unstamped_compaction_is_allowed",
    "tests/fast/world/test_oracle.py::test_what_an_earlier_look_has_compared_is_not_read_again_and_what_came_since_is",
    "tests/fast/test_statements.py::test_no_value_is_formatted_into_a_statement",
    "tests/fast/test_statements.py::test_what_is_quoted_instead_of_bound_is_on_the_list_and_the_list_is_no_longer_than_that",
    "tests/fast/world/test_world.py::test_histories_hold_every_kind_of_step",
    "tests/fast/world/test_world.py::test_a_workload_knows_every_snapshot_that_it_made",
)
"""Tests of these files that reach out of their process, or take long."""

ONE_OF_EACH = (
    "tests/e2e/test_pipelines.py::test_once_waits_for_every_pipeline_and_its_code_is_that_of_the_worst",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[kill]",
    "tests/lake/test_histories.py::test_every_destination_of_any_history_is_exact[0]",
    "tests/lake/test_histories.py::test_every_destination_of_any_history_is_exact[1]",
    "tests/model/test_citations.py",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[direct]",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[expiry]",
    "tests/test_tiers.py",
)
"""Of what is slow, the one that `test` has."""

LONGEST = (
    "tests/fast/applier/test_lives.py",
    "tests/fast/control/test_lives.py::test_a_day_of_ten_thousand_lives_leaves_nothing_but_what_has_a_bound",
    "tests/fast/reader/planner/test_crowd.py",
    "tests/fast/cli/up/test_several_pipelines.py",
    "tests/fast/control/page/test_browser.py",
    "tests/fast/control/api/test_destinations.py",
    "tests/fast/control/api/test_openapi.py",
    "tests/fast/control/api/test_pipelines.py",
    "tests/fast/control/web/test_proxy_nginx.py",
    "tests/fast/control/api/test_schema.py",
    "tests/fast/control/test_service.py",
    "tests/fast/control/web/test_hostile_routes.py",
    "tests/fast/applier/test_pipeline_consumer.py",
    "tests/fast/shared/kafka/test_work_consumer.py",
    "tests/fast/control/test_several_controls.py",
)
"""Of `tests/fast`, what is in `test-all` alone."""

NIGHTLY = (
    "tests/e2e/test_pipelines.py::test_what_is_put_runs_beside_a_file_survives_a_restart_and_goes_alone[a folder]",
    "tests/e2e/test_processes_die.py::test_services_and_the_whole_tree_killed_during_a_workload_lose_and_double_nothing",
    "tests/e2e/test_topic_real_registry.py::test_records_in_each_format_land_by_the_schemas_of_a_real_registry",
    "tests/e2e/test_topics_up.py::test_services_killed_while_records_come_lose_and_double_nothing",
    "tests/e2e/test_topics_up.py::test_the_whole_tree_killed_and_started_again_loses_and_doubles_nothing",
    "tests/e2e/test_torture.py::TestIncidents::test_silent_stall_after_the_cluster_was_recreated",
    "tests/e2e/test_torture.py::TestIncidents::test_two_coordinators_after_one_rebalance",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[clock]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[expire]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[network]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[partitions]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[poison]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[postgres]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[replay]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[source-topic]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[tenants]",
    "tests/e2e/test_torture.py::test_nothing_is_lost_or_doubled_under[unusable]",
    "tests/lake/test_destination_schema.py::test_two_thousand_columns_are_shown_and_one_more_is_followed",
    "tests/lake/test_histories.py::test_so_is_a_usual_one_on_postgres[94080]",
    "tests/lake/test_histories.py::test_so_is_one_on_postgres_whose_source_is_restored_while_the_applier_has_it_open[70008]",
    "tests/lake/test_histories.py::test_so_is_one_on_postgres_whose_source_is_restored_while_the_applier_has_it_open[70012]",
    "tests/lake/test_histories.py::test_so_it_does_on_postgres[98006]",
    "tests/lake/test_histories.py::test_what_an_owner_has_lost_parks[98007]",
    "tests/lake/test_histories_on_spark.py::test_spark_answers_as_the_functions_do[1]",
    "tests/lake/test_shapes.py::test_a_table_may_have_a_thousand_columns",
    "tests/model/test_models.py::test_a_mistake_in_the_specification_is_found",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[direct-first]",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[direct-mixed]",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[small-broker]",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[small-upkeep]",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[small]",
    "tests/model/test_models.py::test_every_promise_holds_whatever_fails_and_whenever[topics-lives]",
)
"""What takes long, and does in another size or way what `test-all` has: a fault among faults (`make torture`), services
killed at random (`make soak`), models of more faults at once (`make model-check`), a wide table, a registry that is
fetched first; of histories that differ in nothing but their seeds, the second half; and mistakes planted in the
specification, as those in the code are played by `make mutants` alone."""

TIERS: dict[str, Tier] = {
    "": Tier.ALL,
    "tests/fast/": Tier.TEST,
    "client/tests/": Tier.CHECK,
    **dict.fromkeys((*WITHIN_THE_PROCESS, *ONE_BY_ONE), Tier.CHECK),
    **dict.fromkeys((*BESIDE, *ONE_OF_EACH), Tier.TEST),
    **dict.fromkeys(LONGEST, Tier.ALL),
    **dict.fromkeys(NIGHTLY, Tier.MATRIX),
}

CATALOG = "make_lake"
SETTINGS = (CATALOG, "commit", "in_files", "inlined", "maintained")
"""Parameters of tests of lakes: where the catalog is, who commits, whether rows are in files or in the catalog, and
whether the source was maintained in between."""

PARTS = 2
"""Of a property that is tried part by part."""


def tier_of(nodeid: str) -> Tier:
    """Without regard to settings."""
    return TIERS[max((place for place in TIERS if nodeid.startswith(place)), key=len)]


def tiers_of(tests: Mapping[str, Mapping[str, Any]]) -> dict[str, Tier]:
    """The tier of each test by its id, given the parameters of each: all that a test has, or settings are unknown."""
    found = {nodeid: tier_of(nodeid) for nodeid in tests}
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for nodeid, parameters in tests.items():
        if parameters.get("part", 0) >= PARTS:
            found[nodeid] = Tier.MATRIX
        elif not parameters.keys().isdisjoint(SETTINGS):
            same = (f"{name}={value!r}" for name, value in parameters.items() if name not in SETTINGS)
            alike[nodeid.partition("[")[0], *same].append(nodeid)
    for several in alike.values():
        rest, turn = divmod(zlib.crc32(several[0].encode()), len(several))
        chosen = several[turn]
        found.update({nodeid: Tier.MATRIX for nodeid in several if nodeid != chosen and found[nodeid] > Tier.CHECK})
        if tests[chosen].get(CATALOG) == "sqlite" and rest % 2 == 0:
            found[chosen] = min(found[chosen], Tier.TEST)
    return found


def parameters_of(items: Iterable[pytest.Item]) -> dict[str, Mapping[str, Any]]:
    """Of each test, by its id."""
    return {item.nodeid: item.callspec.params if hasattr(item, "callspec") else {} for item in items}


FORBIDDEN = frozenset(
    {
        "socket.connect",
        "socket.bind",
        "subprocess.Popen",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.exec",
        "os.system",
    }
)


class Outside(Exception):
    """A test of the tier check reached for a socket or a process."""


class Guard:
    """Forbids sockets and processes while it is held. What Python's own runtime does not see, such as librdkafka's and
    libpq's sockets, it does not see either: such tests ask for a server's fixture, and are in no place of ``check``."""

    def __init__(self) -> None:
        self._held = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    @contextmanager
    def over(self, nodeid: str) -> Iterator[None]:
        """Holds the guard for a test of the tier check, and for no other. Raises ``Outside`` where what was forbidden
        was tried and the exception went nowhere."""
        if tier_of(nodeid) is not Tier.CHECK:
            yield
            return
        self.hold()
        try:
            yield
        finally:
            self.release()
        if self.seen:
            raise Outside(f"{self.seen}: tests of the tier check stay within their process (tests/tiers.py)")

    def hold(self) -> None:
        self._held, self.seen = True, []

    def release(self) -> None:
        self._held = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._held and event in FORBIDDEN:
            self.seen.append(event)
            raise Outside(f"{event}{arguments!r}: tests of the tier check stay within their process (tests/tiers.py)")


def select(items: list[pytest.Item], asked: Tier) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those of the tier, and the others."""
    tiers = tiers_of(parameters_of(items))
    kept = [item for item in items if tiers[item.nodeid] <= asked]
    return kept, [item for item in items if tiers[item.nodeid] > asked]
