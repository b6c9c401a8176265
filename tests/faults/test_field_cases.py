"""Reports from the field, by their number, and the tests that show the right answer."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = 'harness_temporal/testing'
"""The conformance suite: every store runs its rules."""

TESTS: dict[int, tuple[str, ...]] = {
    1: ('tests/runs/test_step_persistence.py::test_interrupting_right_after_a_tool_keeps_its_return',),
    2: (
        'tests/runs/test_step_persistence.py::test_a_failing_model_after_a_clean_cycle_leaves_a_complete_snapshot',
        'tests/runs/test_step_persistence.py'
        '::test_a_crash_in_the_middle_of_a_tool_cycle_is_interrupted_and_off_the_default_path',
    ),
    4: ('tests/unit/test_history.py::test_broken_pairs_are_told_apart_and_the_history_is_interrupted',),
    5: ('tests/state/test_field_cases.py::test_field_case_5_dangling_call_obeys_the_policy_with_and_without_input',),
    6: ('tests/state/test_deferred.py::test_returns_of_a_deferred_turn_are_all_in_the_history_once',),
    7: ('tests/temporal/test_agent_run.py::test_a_request_that_is_not_the_history_leaves_the_history_whole',),
    9: (
        'tests/runs/test_step_persistence.py::test_malformed_arguments_are_kept_as_they_are_and_run_nothing',
        f'{RULES}/content.py::test_arguments_that_are_text_are_kept_character_by_character',
    ),
    10: (
        f'{RULES}/runs.py::test_another_registration_of_a_run_id_is_refused',
        f'{RULES}/effects.py::test_calls_of_two_runs_with_one_id_are_independent',
        f'{RULES}/effects.py::test_calls_with_one_id_are_kept_apart_by_their_keys',
    ),
    11: ('tests/runs/test_step_persistence.py::test_calls_of_two_steps_with_the_same_or_an_empty_id_are_kept_apart',),
    12: (
        'tests/temporal/test_worker_death.py::test_undeclared_tool_runs_at_most_once_when_its_worker_dies',
        'tests/temporal/test_worker_death.py::test_declared_tool_runs_again_when_its_worker_dies',
        'tests/temporal/test_worker_death.py::test_always_runs_an_undeclared_tool_again',
    ),
    13: ('tests/state/test_field_cases.py::test_field_case_13_ledger_and_history_may_be_behind_each_other',),
    15: ('tests/runs/test_step_persistence.py::test_two_calls_of_one_response_with_the_same_id_run_nothing',),
    16: ('tests/temporal/test_agent_run.py::test_control_flow_is_an_outcome_and_the_body_runs_once_per_call',),
    18: ('tests/state/test_deferred.py::test_field_case_18_answer_in_the_wrong_category_is_no_answer',),
    19: ('tests/state/test_deferred.py::test_field_case_19_decision_that_was_decoded_from_json_is_a_bool',),
    20: ('tests/state/test_deferred.py::test_field_case_20_resuming_without_answers_is_no_approval',),
    21: (
        'tests/state/test_deferred.py::test_field_case_21_mixed_batch_runs_each_call_once',
        'tests/temporal/test_resuming.py::test_answers_go_into_a_suspended_run',
    ),
    22: ('tests/unit/test_history.py::test_errors_without_their_input_are_refused_and_the_part_named',),
    23: (
        f'{RULES}/content.py::test_file_that_a_tool_returned_reads_back_as_the_same_bytes',
        'tests/temporal/test_agent_run.py::test_a_result_that_cannot_be_encoded_is_told_to_the_model',
    ),
    25: (f'{RULES}/content.py::test_metadata_of_a_tool_return_reads_back_as_its_json',),
    26: (
        'tests/state/test_field_cases.py::test_field_case_26_messages_of_older_releases_load',
        'tests/state/test_field_cases.py'
        '::test_field_case_26_unknown_version_is_a_typed_error_and_unknown_namespaces_stay',
    ),
    27: (
        f'{RULES}/content.py::test_text_anywhere_in_a_message_reads_back',
        f'{RULES}/content.py::test_text_of_a_run_reads_back_and_is_found',
    ),
    28: (f'{RULES}/content.py::test_text_of_an_event_reads_back',),
    29: (f'{RULES}/content.py::test_nan_and_infinities_do_not_become_null',),
    32: (
        'tests/stores/test_postgres.py::test_many_fresh_stores_set_up_an_empty_database_at_once',
        'tests/stores/test_postgres.py::test_setting_up_that_fails_half_way_leaves_nothing_and_the_next_use_works',
    ),
    33: ('tests/stores/test_postgres.py::test_given_pool_gives_the_same_as_a_pool_of_the_stores_own',),
    35: ('tests/stores/test_postgres.py::test_store_leaves_no_state_in_a_session',),
    37: ('tests/stores/test_postgres.py::test_second_event_loop_is_told_what_to_do',),
    39: ('tests/stores/test_sqlite.py::test_write_in_the_callers_transaction_is_rolled_back_with_it',),
    40: (
        f'{RULES}/snapshots.py::test_newest_is_what_was_written_last_though_the_clock_goes_back',
        f'{RULES}/reopening.py::test_order_goes_on_after_reopening_though_the_clock_goes_back',
    ),
    41: ('tests/stores/test_sqlite.py::test_many_processes_open_and_write_to_a_fresh_file_at_once',),
    42: (
        'tests/stores/test_file.py::test_last_line_that_was_cut_short_is_dropped_with_a_warning_and_spoils_nothing',
        'tests/stores/test_file.py::test_damaged_line_in_the_middle_is_an_error_that_says_where',
    ),
    45: ('tests/temporal/test_agent_run.py::test_a_worker_without_cache_replays_every_task_and_writes_nothing_twice',),
    46: ('tests/temporal/test_agent_run.py::test_a_reset_run_meets_the_effects_it_already_did',),
    47: (
        'tests/temporal/payloads/test_large.py::test_a_result_a_prompt_and_an_output_of_5_mb_pass',
        'tests/temporal/payloads/test_large.py'
        '::test_without_storage_a_large_result_fails_at_once_with_the_tool_and_the_size',
    ),
    48: (
        'tests/temporal/test_continue_as_new.py::test_a_large_history_goes_by_reference_and_a_small_one_by_value',
        'tests/state/test_growth.py::test_field_case_48_classes_and_pending_calls_survive',
    ),
    49: ('tests/temporal/test_agent_run.py::test_dependencies_that_do_not_fit_fail_the_workflow_by_name',),
    50: (
        'tests/temporal/test_agent_run.py::test_a_silent_tool_longer_than_the_heartbeat_survives',
        'tests/temporal/test_agent_run.py::test_cancelling_the_workflow_ends_its_tool_and_its_run',
    ),
    52: (
        'tests/unit/test_imports.py::test_public_names_can_be_imported_without_any_extra',
        'tests/temporal/test_plugin.py::test_only_the_module_that_defines_an_agent_is_passed_through',
    ),
    53: ('tests/faults/test_campaign.py::test_short_campaign',),
    54: ('tests/state/test_field_cases.py::test_field_case_54_tool_knows_its_run_and_thread',),
    56: ('tests/faults/test_synchronous_calls.py::test_a_synchronous_call_fails_the_workflow',),
    58: (
        'tests/temporal/payloads/test_storage.py::test_the_codec_of_somebody_else_is_kept_or_refused',
        'tests/temporal/payloads/test_encryption.py'
        '::test_encryption_and_storage_are_turned_on_while_a_run_is_under_way',
    ),
    59: ('tests/temporal/test_resuming.py::test_a_thread_goes_from_run_to_run_as_its_state',),
    60: (
        'tests/stores/test_large_parts.py::test_data_that_looks_like_a_reference_comes_back_as_it_is',
        'tests/unit/test_external_parts.py::test_user_data_that_looks_like_the_form_is_not_taken_for_it',
    ),
    61: (
        f'{RULES}/content.py::test_text_larger_than_a_document_of_some_databases_reads_back',
        'tests/stores/test_large_parts.py::test_several_images_in_one_message',
    ),
    62: (
        'tests/stores/test_large_parts.py::test_threshold',
        'tests/unit/test_imports.py::test_public_names_can_be_imported_without_any_extra',
    ),
    63: (
        'tests/stores/test_large_parts.py::test_a_blob_that_is_gone_is_an_error_with_the_run_and_the_blob',
        'tests/stores/test_large_parts.py::test_nothing_refers_to_a_blob_that_could_not_be_stored',
    ),
    64: (
        f'{RULES}/maintenance.py::test_blob_of_a_deleted_conversation_goes_unless_another_has_it',
        f'{RULES}/maintenance.py::test_messages_of_deleted_runs_go_and_shared_ones_stay',
    ),
    65: (
        'tests/stores/test_mongo.py::test_store_is_used_in_one_loop_only',
        'tests/stores/test_sqlite.py::test_store_serves_one_event_loop_after_another_and_many_at_once',
    ),
    67: (
        f'{RULES}/content.py::test_value_that_a_tool_returned_reads_back',
        f'{RULES}/content.py::test_key_of_a_mapping_reads_back',
    ),
    69: ('tests/media/test_s3.py::test_no_request_has_a_checksum_unless_asked',),
    70: (
        'tests/media/test_s3.py::test_missing_is_told_from_refused',
        'tests/media/test_s3.py::test_who_may_not_look_may_still_put',
    ),
    73: (
        'tests/memory/test_injection.py::test_a_block_never_exceeds_its_budget_nor_breaks_out',
        'tests/temporal/test_memory.py::test_a_run_of_20_steps_sees_a_large_notebook_within_bounds',
    ),
    74: (
        'tests/faults/test_user_input_fuzz.py::test_no_id_leaves_the_folder_of_a_store',
        'tests/stores/test_file.py::test_ids_never_share_a_folder_whatever_the_file_system_takes_for_the_same',
    ),
    75: (
        'tests/stores/test_mongo.py::test_operator_in_a_filter_is_not_an_operator',
        f'{RULES}/runs.py::test_filter_is_a_value_and_nothing_else',
        f'{RULES}/memory.py::test_search_is_literal_and_does_not_regard_case',
    ),
}


def test_every_case_has_its_tests() -> None:
    numbers = [
        *(1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 15, 16, 18, 19, 20, 21, 22, 23, 25, 26, 27, 28, 29, 32, 33, 35, 37, 39),
        *(40, 41, 42, 45, 46, 47, 48, 49, 50, 52, 53, 54, 56, 58, 59, 60, 61, 62, 63, 64, 65, 67, 69, 70, 73, 74, 75),
    ]
    assert sorted(TESTS) == numbers


def test_the_tests_are_there() -> None:
    missing = [
        node for nodes in TESTS.values() for node in nodes if node.split('::')[1] not in names_in(node.split('::')[0])
    ]
    assert not missing


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
