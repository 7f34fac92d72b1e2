//! The conformance suite of `Store`: one sentence of the contract, one test.
//!
//! An implementation's tests say `duetime_testkit::store_conformance!(MyFactory::new());` and get a
//! named test for each sentence. Sentences that need time to pass move it where the factory can,
//! and else wait for real, a fraction of a second.

#![expect(missing_docs, reason = "a sentence's name says it all")]

pub mod attempts;
pub mod claim;
pub mod conflict;
pub mod content;
pub mod dead;
pub mod dead_edit;
pub mod edit;
pub mod enqueue;
pub mod epoch;
pub mod in_flight;
pub mod list;
pub mod look;
pub mod moved;
pub mod past;
pub mod receipt;
pub mod records;
pub mod repeat;
pub mod restore;
pub mod series;
pub mod settle;
pub mod suspect;
pub mod topics;
pub mod watermark;
pub(crate) mod world;

use crate::conformance::StoreFactory;

/// One `#[tokio::test]` for each sentence of the suite; the expression makes a [`StoreFactory`].
#[macro_export]
macro_rules! store_conformance {
    ($factory:expr) => {
        $crate::store_conformance! { @list @tests store $factory; }
    };
    (@list $($then:tt)*) => {
        $crate::suite! { $($then)*
            attempts::a_message_has_as_many_attempts_as_it_says_fewer_or_more_than_its_topic,
            attempts::beside_it_the_others_have_those_of_their_topic,
            attempts::a_claim_that_runs_out_for_the_last_time_that_it_says_is_its_end,
            attempts::what_is_given_back_for_nothing_costs_none_of_its_own_attempts,
            attempts::a_redrive_gives_it_as_many_attempts_again,
            attempts::a_replacement_has_the_number_that_it_says_itself,
            attempts::a_suspect_that_has_one_of_its_own_attempts_left_is_claimed_alone,
            attempts::at_most_once_what_has_had_its_own_attempts_is_dead_and_what_has_not_goes,
            attempts::what_is_no_number_counts_as_none,
            claim::only_what_is_due_is_claimed,
            claim::a_message_is_claimed_once_its_time_has_come,
            claim::an_empty_shard_has_nothing_and_waits_for_nothing,
            claim::a_claimed_message_comes_with_all_it_was_given,
            claim::the_oldest_is_claimed_first,
            claim::no_more_than_asked_is_claimed_and_the_rest_is_counted,
            claim::one_claim_brings_the_largest_batch_and_no_more,
            claim::the_bytes_of_one_claim_are_bounded,
            claim::a_message_above_the_bound_is_claimed_alone,
            claim::what_is_claimed_is_hidden_until_its_deadline,
            claim::one_claim_has_one_deadline_and_no_two_the_same,
            claim::a_long_claim_does_not_push_the_deadline_of_a_short_one,
            claim::each_claim_is_one_attempt_more,
            claim::a_message_out_of_attempts_is_buried_and_not_claimed,
            claim::a_message_in_time_is_claimed_past_one_that_is_buried,
            claim::nothing_is_early_by_the_callers_clock,
            claim::nothing_is_early_by_the_stores_clock,
            claim::a_clock_that_was_ahead_lets_nothing_out_early_and_puts_nothing_off,
            claim::a_shorter_visibility_holds_from_the_next_claim_on,
            claim::clocks_far_apart_take_nothing,
            claim::clocks_far_apart_refuse_relative_times_and_serve_the_rest,
            claim::at_most_once_removes_what_it_claims,
            claim::two_who_claim_at_once_share_nothing,
            content::payloads_arrive_bit_for_bit,
            content::headers_arrive_as_they_were_given,
            content::odd_ids_are_ids_like_others,
            content::ids_that_look_alike_are_kept_apart,
            content::equal_payloads_do_not_collapse_into_one,
            dead::a_dead_letter_keeps_all_it_was_given_and_how_it_died,
            dead::dead_letters_are_read_in_pages_each_once_oldest_first,
            dead::a_shard_without_dead_letters_has_an_empty_page,
            dead::a_page_starts_behind_letters_that_went_away_meanwhile,
            dead::a_redriven_letter_is_due_at_once_with_all_attempts_back,
            dead::each_redrive_is_counted_and_changes_nothing_else,
            dead::a_move_in_time_keeps_the_count_of_redrives_and_a_replacement_begins_anew,
            dead::a_purged_letter_is_gone_for_good,
            dead::only_dead_letters_are_redriven_or_purged,
            dead::dead_letters_of_a_batch_are_answered_one_by_one,
            dead::a_letter_that_dies_twice_has_its_second_reason,
            dead::dead_letters_end_by_their_own_age_and_one_that_died_again_begins_anew,
            dead::the_newest_dead_letters_stay_and_no_more_go_than_were_too_many,
            dead::an_expired_dead_letter_ends_as_a_purged_one,
            dead::dead_letters_are_removed_in_steps,
            dead_edit::an_edited_letter_is_due_at_once_as_another_message_in_its_place,
            dead_edit::a_repeated_edit_is_known_whatever_became_of_its_message,
            dead_edit::an_edit_overtakes_no_purge_no_cancel_and_no_new_message_of_its_id,
            dead_edit::letters_are_moved_out_each_by_its_own_enqueue_and_death_and_that_is_remembered,
            dead_edit::edits_of_letters_are_answered_one_by_one_in_batches_of_any_size,
            edit::a_cancelled_message_is_never_claimed,
            edit::what_is_not_there_is_unknown,
            edit::cancel_of_a_message_in_flight_removes_it_and_says_so,
            edit::a_shard_remembers_the_claims_that_cancels_ended,
            edit::cancel_of_a_claim_that_ran_out_unnoticed_says_in_flight,
            edit::cancel_of_a_suspect_says_that_it_may_have_been_delivered,
            edit::what_had_no_answer_may_have_been_delivered_whatever_is_done_to_it_next,
            edit::what_had_no_answer_is_claimed_alone_and_keeps_its_attempt_only_if_it_is_charged,
            edit::cancel_of_a_dead_letter_removes_it,
            edit::a_cancelled_id_may_be_scheduled_again_as_new,
            edit::a_message_moved_later_is_not_claimed_at_its_old_time,
            edit::a_message_moved_sooner_is_claimed_at_its_new_time,
            edit::a_relative_move_counts_from_the_present,
            edit::a_moved_message_has_its_attempts_back,
            edit::a_message_in_flight_is_not_moved,
            edit::a_dead_letter_is_not_moved,
            edit::a_moved_suspect_has_its_attempts_back_and_comes_alone,
            edit::edits_of_a_batch_are_answered_one_by_one_in_order,
            edit::an_id_cancelled_twice_in_one_batch_is_unknown_the_second_time,
            conflict::of_two_that_wait_one_is_there_whole_by_its_due_time,
            conflict::a_delay_is_compared_by_the_due_time_it_means,
            conflict::the_same_enqueue_by_due_time_is_answered_as_one_that_is_there,
            conflict::one_that_waits_for_its_retry_is_compared_by_its_due_time,
            conflict::what_does_not_wait_is_replaced_by_either_rule,
            conflict::one_whose_claim_ran_out_is_replaced_by_either_rule,
            conflict::due_times_are_compared_item_by_item_within_a_batch,
            in_flight::no_more_is_in_flight_than_the_shard_may_have,
            in_flight::a_claim_with_room_for_all_is_not_full,
            in_flight::whatever_ends_a_claim_leaves_room_for_another,
            in_flight::what_waits_for_its_retry_is_not_in_flight,
            in_flight::a_claim_that_ran_out_holds_no_place_whatever_was_due_before_it,
            in_flight::more_claims_that_ran_out_than_one_look_finds_are_found_by_the_next,
            in_flight::a_claim_by_a_clock_that_was_put_back_holds_no_place_once_it_ran_out,
            in_flight::a_repeated_claim_is_answered_as_the_first_time_at_the_bound,
            in_flight::two_who_claim_at_once_keep_within_the_bound_together,
            in_flight::who_settles_or_cancels_is_told_that_there_is_room,
            enqueue::a_scheduled_message_is_there_as_it_was_given,
            enqueue::an_id_that_lives_is_refused_and_nothing_changes,
            enqueue::an_id_that_lives_is_replaced_when_asked,
            enqueue::replace_of_an_id_that_is_not_there_schedules_it,
            enqueue::the_same_nonce_is_answered_as_the_first_time,
            enqueue::the_same_nonce_changes_nothing_while_the_message_is_in_flight_or_dead,
            enqueue::a_relative_delay_counts_from_the_present,
            enqueue::a_delay_of_nothing_is_due_at_once,
            enqueue::a_due_time_in_the_past_is_kept_and_due_at_once,
            enqueue::the_epoch_itself_and_ten_years_ahead_are_due_times,
            enqueue::a_batch_is_answered_item_by_item_in_order,
            enqueue::an_empty_batch_is_answered_with_nothing,
            enqueue::a_batch_of_the_largest_size_is_taken_whole,
            enqueue::the_claim_of_a_replaced_message_can_not_be_settled,
            enqueue::a_dead_id_is_refused_or_replaced_as_one_that_lives,
            enqueue::a_new_id_beside_dead_ones_is_scheduled,
            epoch::an_older_epoch_is_stale_and_learns_the_present_record,
            epoch::a_newer_epoch_is_not_ready,
            epoch::the_same_epoch_is_served,
            epoch::a_shard_that_was_never_made_is_unknown,
            list::a_list_is_in_the_order_of_time_and_says_who_holds_what,
            list::messages_of_one_moment_are_listed_once_each_in_pages_of_any_length,
            list::a_list_has_what_is_visible_in_its_range_and_no_dead_letters,
            list::a_list_goes_on_behind_a_message_that_went_away,
            list::a_page_has_no_more_than_a_batch,
            look::a_store_that_serves_says_it_is_ready,
            look::an_empty_shard_is_surveyed_as_empty,
            look::a_survey_counts_each_message_once,
            look::shards_are_surveyed_in_the_order_asked,
            look::the_bytes_of_bodies_follow_what_is_there,
            look::the_head_is_the_first_visible_time,
            look::a_forecast_counts_what_falls_into_each_bucket_over_all_shards,
            look::a_sooner_head_is_hinted,
            look::whatever_happens_the_counts_add_up,
            moved::a_cancel_of_a_version_removes_that_and_no_other,
            moved::a_cancel_of_a_version_takes_nothing_that_is_claimed_was_tried_or_is_dead,
            moved::what_moved_is_remembered_with_its_version_and_not_scheduled_here_again,
            moved::a_cancel_of_what_moved_says_so_and_holds_where_it_comes_back,
            moved::a_source_moves_what_lives_there_and_knows_what_moved,
            moved::what_comes_back_is_scheduled_where_its_move_was_later_than_what_an_earlier_home_remembers,
            past::what_became_of_a_message_is_remembered,
            past::acks_in_a_batch_with_other_settlements_are_remembered,
            past::what_is_removed_as_it_is_claimed_is_remembered_as_delivered,
            past::what_has_expired_is_removed_and_remembered_as_that,
            past::a_cancel_of_what_is_gone_says_what_became_of_it,
            past::an_ack_that_is_repeated_is_answered_already,
            past::an_ack_of_a_claim_that_ended_is_no_repetition,
            past::an_id_that_is_remembered_is_not_scheduled_twice,
            past::a_cancel_that_overtakes_its_enqueue_holds,
            past::without_a_memory_nothing_is_remembered,
            past::a_memory_that_begins_anew_knows_nothing_of_the_one_before,
            past::an_outcome_is_remembered_for_the_window_and_no_longer,
            past::a_source_says_what_became_of_what_ended_there,
            receipt::the_receipt_of_an_earlier_claim_is_refused,
            receipt::the_receipt_of_an_earlier_life_is_refused,
            receipt::a_settled_claim_is_not_settled_again,
            receipt::a_receipt_settles_only_its_own_message,
            receipt::a_score_nobody_was_given_proves_nothing,
            records::a_record_is_changed_only_by_who_saw_it_as_it_is,
            records::records_of_two_kinds_and_one_name_are_two_things,
            records::records_are_bounded_in_length_and_number,
            records::a_version_never_comes_again,
            repeat::a_claim_repeated_by_its_request_has_the_same_answer,
            repeat::a_repeated_claim_answers_only_what_is_still_held,
            repeat::the_last_sixteen_claims_are_remembered,
            repeat::a_repeated_claim_of_a_suspect_answers_it_again,
            repeat::an_at_most_once_claim_repeated_brings_nothing_twice,
            restore::what_was_removed_is_put_back_as_it_was,
            restore::what_was_put_back_and_has_ended_does_not_come_back_again,
            restore::an_id_to_which_something_else_happened_is_left_alone,
            restore::only_the_very_removal_is_put_back,
            restore::nothing_is_put_back_of_what_is_not_remembered,
            restore::what_is_held_or_another_by_now_is_not_removed,
            restore::nothing_is_put_back_under_another_record_than_it_was_removed_under,
            series::the_next_one_takes_the_place_of_the_one_before,
            series::a_series_goes_on_turn_by_turn,
            series::a_claim_that_is_over_writes_no_next_one,
            series::one_that_is_given_back_is_tried_again_and_a_dead_letter_keeps_the_rule,
            series::series_and_others_are_settled_in_one_batch,
            series::what_of_a_series_was_delivered_or_expired_is_remembered_until_the_next,
            settle::an_acknowledged_message_is_gone,
            settle::a_nacked_message_comes_again_after_its_delay,
            settle::a_released_message_has_its_attempt_back_and_its_old_place,
            settle::a_deferred_message_has_its_attempt_back_and_comes_later,
            settle::a_release_after_a_nack_keeps_the_attempts_before,
            settle::an_extended_claim_holds_longer_under_a_new_receipt,
            settle::an_extension_has_a_receipt_of_its_own_even_at_the_same_moment,
            settle::a_claim_is_extended_into_the_class_of_its_new_length,
            settle::each_claim_of_a_batch_is_extended_by_its_own_time_also_to_an_earlier_end,
            settle::a_buried_message_is_a_dead_letter_with_its_reason,
            settle::an_overlong_reason_is_cut,
            settle::settlements_of_a_batch_are_answered_one_by_one_in_order,
            settle::acks_of_several_claims_in_one_batch_are_each_judged,
            suspect::a_message_whose_claim_ran_out_waits_for_its_backoff,
            suspect::suspects_are_claimed_one_by_one_from_their_second_run_out_on,
            suspect::what_ran_out_long_ago_is_taken_together_too_unless_it_has_one_attempt_left,
            suspect::a_claim_takes_the_ordinary_ones_before_the_first_suspect,
            suspect::a_claim_that_ran_out_long_ago_is_taken_at_once_and_alone,
            suspect::the_wait_of_a_suspect_grows,
            suspect::the_wait_of_a_suspect_is_that_of_the_list_and_then_the_last,
            suspect::a_suspect_out_of_attempts_is_a_dead_letter_with_its_reason,
            suspect::a_message_that_always_kills_its_node_ends_as_a_dead_letter,
            suspect::a_nacked_suspect_is_an_ordinary_message_again,
            suspect::a_receipt_is_worth_nothing_once_its_claim_was_found_ended,
            suspect::claims_that_ran_out_count_as_due_until_they_are_noticed,
            topics::a_topic_is_read_back_as_it_was_put,
            topics::a_topic_is_created_only_once,
            topics::a_topic_is_changed_from_the_version_seen,
            topics::a_topic_that_is_not_there_can_not_be_changed,
            topics::a_change_never_touches_the_routing,
            topics::a_deleted_topic_is_gone_and_its_shards_refuse,
            topics::a_topic_that_holds_anything_is_deleted_by_force_alone,
            topics::an_enqueue_beside_a_deletion_without_force_is_refused_or_stays,
            topics::a_topic_that_was_never_there_is_not_deleted,
            topics::a_topic_created_again_starts_empty,
            topics::a_topic_of_many_messages_is_deleted_whole,
            topics::each_life_of_a_name_has_a_higher_number,
            topics::a_caller_of_an_earlier_life_learns_the_present_record_and_changes_nothing,
            topics::a_caller_of_a_life_to_come_is_not_ready,
            topics::a_topic_that_is_well_is_adopted_as_it_is,
            topics::nothing_crosses_from_topic_to_topic,
            topics::nothing_crosses_from_shard_to_shard,
            watermark::without_anything_that_is_due_the_watermark_is_the_present,
            watermark::what_is_due_holds_it_back_until_it_is_done,
            watermark::whatever_gives_a_message_back_it_holds_by_its_first_due_time,
            watermark::through_further_attempts_the_first_due_time_stays,
            watermark::every_end_of_a_claim_is_done,
            watermark::a_moved_or_replaced_message_holds_by_its_new_due_time,
            watermark::what_is_redriven_holds_from_then_on,
            watermark::what_is_put_back_holds_by_its_first_due_time,
            watermark::what_ended_without_its_entry_holds_nothing_back,
            watermark::the_watermark_that_is_kept_never_goes_back,
            watermark::a_topic_made_again_begins_its_watermark_anew,
        }
    };
}

/// Runs every sentence, one after the other; for places that want no test of its own for each.
pub async fn run_all(factory: &dyn StoreFactory) {
    crate::store_conformance! { @list @run store factory; }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_that_is_written_is_run() {
        let listed = crate::store_conformance! { @list @names store (); };
        crate::conformance::check_listed(&listed, &world::SOURCES);
    }
}
