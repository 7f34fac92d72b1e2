//! The conformance suite of `ResizeStore` and `RoutingAuthority`: one sentence, one test.
//!
//! An implementation's tests say `duetime_testkit::resize_conformance!(MyFactory::new());`.

#![expect(missing_docs, reason = "a sentence's name says it all")]

pub mod fence;
pub mod in_flight;
pub mod moves;
pub mod outbox;
pub mod routing;
pub mod source;
mod world;

use crate::conformance::StoreFactory;

/// One `#[tokio::test]` for each sentence of the suite; the expression makes a [`StoreFactory`].
#[macro_export]
macro_rules! resize_conformance {
    ($factory:expr) => {
        $crate::resize_conformance! { @list @tests resize $factory; }
    };
    (@list $($then:tt)*) => {
        $crate::suite! { $($then)*
            fence::a_fence_creates_a_new_shard_empty,
            fence::a_fence_raises_a_shard_and_leaves_its_messages_and_receipts,
            fence::a_fence_repeated_changes_nothing,
            fence::an_older_caller_learns_the_record_from_every_call,
            fence::a_caller_with_a_forgotten_change_of_the_same_epoch_learns_the_record_from_every_call,
            fence::a_shard_that_was_not_fenced_is_not_ready,
            fence::a_lower_fence_is_stale,
            fence::another_change_of_the_same_epoch_is_damage,
            fence::a_commit_may_be_sent_to_a_shard_and_is_not_taken_back,
            fence::deadlines_go_on_above_the_floor,
            fence::a_retired_shard_keeps_its_record,
            fence::a_shard_of_no_topic_is_not_fenced,
            fence::a_fence_of_another_life_touches_nothing,
            fence::a_shard_that_should_be_there_is_not_made_by_a_fence,
            fence::shards_are_inspected_in_order_whatever_their_epochs,
            in_flight::what_is_claimed_stays_where_it_is_until_it_has_run_out,
            in_flight::a_new_shard_has_as_many_in_flight_as_places_were_handed_over,
            in_flight::under_another_record_a_shard_begins_without_places,
            in_flight::no_bound_is_taken_that_the_shards_cannot_keep_and_none_is_changed_while_ids_move,
            moves::a_scan_meets_every_message_in_whatever_state,
            moves::a_scan_in_pages_misses_nothing_that_stays,
            moves::a_receipt_of_the_source_shard_settles_nothing_that_the_new_home_gave_out,
            moves::a_moved_message_is_as_it_was,
            moves::a_moved_message_has_the_attempts_that_it_says,
            moves::a_receipt_stays_good_across_a_move,
            moves::a_claim_that_runs_out_after_its_move_is_a_suspect,
            moves::a_repeated_claim_never_answers_what_a_batch_brought,
            moves::a_batch_is_put_once,
            moves::an_id_that_lives_at_the_destination_stays_as_it_is,
            moves::a_batch_that_is_not_above_the_last_is_a_conflict,
            moves::batches_of_each_source_are_remembered_by_themselves,
            moves::deadlines_go_on_above_what_a_batch_brings,
            moves::dead_letters_of_two_shards_are_read_in_pages_each_once,
            moves::dead_letters_that_died_in_one_moment_are_read_in_pages_each_once,
            moves::dead_letters_find_the_free_places_of_a_run_and_behind_it,
            moves::a_sooner_head_that_is_brought_is_hinted,
            source::an_enqueue_acts_on_what_lives_there_and_creates_nothing,
            source::an_enqueue_by_due_time_compares_with_what_lives_there,
            source::an_enqueue_of_relative_delays_gets_its_due_times,
            source::the_same_nonce_is_answered_as_the_first_time_there_too,
            source::a_cancel_removes_what_lives_there,
            source::a_reschedule_moves_what_nobody_holds,
            source::edits_of_many_ids_are_answered_in_order,
            source::a_read_finds_what_lives_there,
            source::a_receipt_is_settled_where_its_message_lives,
            source::a_series_goes_on_where_its_message_lives,
            source::an_extension_there_has_a_new_receipt,
            source::dead_letters_are_settled_where_they_lie,
            source::dead_letters_are_edited_where_they_lie,
            source::a_scan_says_that_a_dead_letter_lives_again_behind_it,
            source::an_empty_batch_there_is_answered_with_nothing,
            outbox::a_frozen_message_is_claimed_by_nobody_and_shown_to_all,
            outbox::a_frozen_dead_letter_is_kept_until_it_has_arrived,
            outbox::a_batch_carries_all_a_message_has,
            outbox::a_batch_that_is_put_back_is_as_it_was,
            outbox::a_move_takes_the_first_due_time_along_in_a_topic_with_a_watermark,
            outbox::an_outbox_that_is_not_empty_is_answered_instead,
            outbox::a_take_of_what_is_not_there_takes_nothing,
            outbox::the_weight_of_a_batch_is_bounded,
            outbox::a_batch_of_the_largest_size_goes_whole,
            outbox::only_the_batch_that_is_named_is_dropped,
            outbox::only_the_batch_that_was_seen_is_renumbered,
            outbox::the_name_of_a_batch_is_kept_exactly,
            routing::a_fresh_topic_has_its_first_record_and_no_requested_count,
            routing::a_topic_that_is_not_there_has_no_record,
            routing::a_record_is_swapped_only_by_who_saw_it_last,
            routing::all_topics_are_answered_with_the_record_that_was_swapped_in,
            routing::a_change_of_the_topic_keeps_record_and_requested_count,
            routing::a_topic_whose_shard_count_changes_is_deleted_by_force_alone,
            routing::a_topic_deleted_while_it_moves_leaves_nothing,
        }
    };
}

/// Runs every sentence, one after the other; for places that want no test of its own for each.
pub async fn run_all(factory: &dyn StoreFactory) {
    crate::resize_conformance! { @list @run resize factory; }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_that_is_written_is_run() {
        let listed = crate::resize_conformance! { @list @names resize (); };
        crate::conformance::check_listed(&listed, &world::SOURCES);
    }
}
