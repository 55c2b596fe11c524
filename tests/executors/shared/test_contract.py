"""The contract of executors, for the executor of one run in a server.

These are the tests of the executor that stands alone, but for those of what a server does in another way: attempts
that wait for a slot wait in its hub and not in the launcher, so none is withdrawn when the launcher dies, and none
starts while the engine reads nothing; the launcher serves other runs and epochs, so it stays when one of them ends.
"""

from __future__ import annotations

import pytest

from tests.executors.local.driver import FORM
from tests.executors.local.test_death import (
    test_a_bad_frame_costs_the_connection_not_the_attempts,
    test_a_full_disk_stops_new_starts_until_there_is_room,
    test_a_launcher_that_always_dies_is_an_error,
    test_a_number_given_out_again_has_the_newest_word,
    test_a_process_that_was_never_recorded_is_lost_not_withdrawn,
    test_an_engine_that_dies_before_its_launcher_got_to_work,
    test_another_number_of_slots_at_a_resume,
    test_engine_and_launcher_dead,
    test_exits_that_reached_the_spool_count,
    test_exits_without_an_engine_are_in_the_spool,
    test_four_that_say_nothing_may_wait,
    test_leftovers_of_ended_attempts_survive_the_launcher,
    test_nothing_is_lost_when_the_next_engine_dies_before_it_acknowledged,
    test_output_that_does_not_fit_on_the_disk_is_known_to_be_lost,
    test_running_attempts_are_adopted,
    test_what_was_not_acknowledged_survives_an_orderly_close,
)
from tests.executors.local.test_kill import (
    test_a_child_keeps_the_grace_when_its_shell_is_gone,
    test_a_daemon_of_a_killed_attempt_is_killed_by_its_mark,
    test_a_daemon_of_a_running_attempt_can_not_write_into_a_later_range,
    test_a_kill_leaves_other_attempts_alone,
    test_a_kill_of_what_is_over_or_ending_changes_nothing,
    test_a_stopped_attempt_can_be_ended,
    test_a_timeout_asks_first,
    test_one_that_does_not_listen_is_killed_after_its_grace,
    test_one_that_left_the_session_is_killed_too,
    test_orphans_of_a_running_attempt_do_not_pile_up,
    test_the_last_of_very_many_orphans_is_known_too,
    test_what_a_normal_end_leaves_running_is_left_alone,
)
from tests.executors.local.test_launch import (
    test_a_big_environment_arrives_whole,
    test_a_long_folder_is_no_obstacle,
    test_a_missing_program_is_blamed_in_a_directory_that_was_missing_before,
    test_a_missing_program_uses_the_fallback,
    test_a_nul_can_not_be_started,
    test_a_program_is_found_in_the_attempts_own_folders,
    test_a_queued_attempt_can_be_withdrawn,
    test_a_signal_is_reported_as_the_wait_status,
    test_a_start_is_told_by_itself_or_with_the_end_and_never_twice,
    test_a_variable_that_all_attempts_have_can_be_changed_for_one,
    test_as_many_run_at_once_as_there_are_slots,
    test_attempts_start_with_default_signals_and_no_input,
    test_exit_code_times_and_usage_are_reported,
    test_no_words_and_an_empty_word_are_no_programs,
    test_one_slot_runs_in_order,
    test_reports_have_the_time_of_the_run,
    test_the_environment_is_added_to_and_path_is_the_attempts_own,
    test_too_much_for_the_system_is_a_spawn_error,
    test_two_thousand_attempts_are_each_reported_once,
    test_what_is_given_out_at_once_starts_in_its_order,
    test_working_directories,
)
from tests.executors.local.test_output import (
    test_a_megabyte_on_both_streams,
    test_a_pipe_that_was_made_non_blocking_is_whole_again,
    test_a_range_that_is_not_all_there_is_an_error,
    test_bytes_survive,
    test_opening_the_standard_streams_again_destroys_nothing,
    test_output_with_secrets_is_flushed_as_it_comes,
    test_ranges_of_one_slot_do_not_mix,
    test_secrets_are_redacted_on_their_way_to_the_disk,
)

__all__ = [
    "test_a_bad_frame_costs_the_connection_not_the_attempts",
    "test_a_big_environment_arrives_whole",
    "test_a_child_keeps_the_grace_when_its_shell_is_gone",
    "test_a_daemon_of_a_killed_attempt_is_killed_by_its_mark",
    "test_a_daemon_of_a_running_attempt_can_not_write_into_a_later_range",
    "test_a_full_disk_stops_new_starts_until_there_is_room",
    "test_a_kill_leaves_other_attempts_alone",
    "test_a_kill_of_what_is_over_or_ending_changes_nothing",
    "test_a_launcher_that_always_dies_is_an_error",
    "test_a_long_folder_is_no_obstacle",
    "test_a_megabyte_on_both_streams",
    "test_a_missing_program_is_blamed_in_a_directory_that_was_missing_before",
    "test_a_missing_program_uses_the_fallback",
    "test_a_nul_can_not_be_started",
    "test_a_number_given_out_again_has_the_newest_word",
    "test_a_pipe_that_was_made_non_blocking_is_whole_again",
    "test_a_process_that_was_never_recorded_is_lost_not_withdrawn",
    "test_a_program_is_found_in_the_attempts_own_folders",
    "test_a_queued_attempt_can_be_withdrawn",
    "test_a_range_that_is_not_all_there_is_an_error",
    "test_a_signal_is_reported_as_the_wait_status",
    "test_a_start_is_told_by_itself_or_with_the_end_and_never_twice",
    "test_a_stopped_attempt_can_be_ended",
    "test_a_timeout_asks_first",
    "test_a_variable_that_all_attempts_have_can_be_changed_for_one",
    "test_an_engine_that_dies_before_its_launcher_got_to_work",
    "test_another_number_of_slots_at_a_resume",
    "test_as_many_run_at_once_as_there_are_slots",
    "test_attempts_start_with_default_signals_and_no_input",
    "test_bytes_survive",
    "test_engine_and_launcher_dead",
    "test_exit_code_times_and_usage_are_reported",
    "test_exits_that_reached_the_spool_count",
    "test_exits_without_an_engine_are_in_the_spool",
    "test_four_that_say_nothing_may_wait",
    "test_leftovers_of_ended_attempts_survive_the_launcher",
    "test_no_words_and_an_empty_word_are_no_programs",
    "test_nothing_is_lost_when_the_next_engine_dies_before_it_acknowledged",
    "test_one_slot_runs_in_order",
    "test_one_that_does_not_listen_is_killed_after_its_grace",
    "test_one_that_left_the_session_is_killed_too",
    "test_opening_the_standard_streams_again_destroys_nothing",
    "test_orphans_of_a_running_attempt_do_not_pile_up",
    "test_output_that_does_not_fit_on_the_disk_is_known_to_be_lost",
    "test_output_with_secrets_is_flushed_as_it_comes",
    "test_ranges_of_one_slot_do_not_mix",
    "test_reports_have_the_time_of_the_run",
    "test_running_attempts_are_adopted",
    "test_secrets_are_redacted_on_their_way_to_the_disk",
    "test_the_environment_is_added_to_and_path_is_the_attempts_own",
    "test_the_last_of_very_many_orphans_is_known_too",
    "test_too_much_for_the_system_is_a_spawn_error",
    "test_two_thousand_attempts_are_each_reported_once",
    "test_what_a_normal_end_leaves_running_is_left_alone",
    "test_what_is_given_out_at_once_starts_in_its_order",
    "test_what_was_not_acknowledged_survives_an_orderly_close",
    "test_working_directories",
]


# The other form runs in the fast suite.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def shared_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drive the executor of a run in a server."""
    monkeypatch.setenv(FORM, "shared")
