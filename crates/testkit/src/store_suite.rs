//! The twin of the contract in `store/mod.rs`: one list of cases that every engine runs whole.
//!
//! No case asks which engine it runs on.

#[doc(hidden)]
pub mod accepting;
#[doc(hidden)]
pub mod asking;
#[doc(hidden)]
pub mod claiming;
#[doc(hidden)]
pub mod clocks;
#[doc(hidden)]
pub mod doubting;
#[doc(hidden)]
pub mod filing;
#[doc(hidden)]
pub mod forgetting;
#[doc(hidden)]
pub mod joining;
#[doc(hidden)]
pub mod leasing;
#[doc(hidden)]
pub mod registering;
#[doc(hidden)]
pub mod room;
#[doc(hidden)]
pub mod sending;
#[doc(hidden)]
pub mod settling;
#[doc(hidden)]
pub mod talking;
#[doc(hidden)]
pub mod turning;

/// Makes one test per case for the engine whose fixture the expression makes, if there is one. It may await.
#[macro_export]
macro_rules! store_suite {
    ($fixture:expr) => {
        $crate::store_suite!(@accepting $fixture;
            a_new_event_is_taken_in_once
            the_same_key_twice_in_one_webhook_is_a_duplicate
            another_content_under_the_same_key_is_a_conflict
            what_holds_a_key_unseen_has_every_content
            a_webhook_with_old_and_new_events_takes_the_new_ones
            keys_outlive_a_crash
            a_key_is_forgotten_after_its_window_and_not_before
            many_keys_stay_taken_over_periods_and_crashes
            two_instances_have_one_winner_per_key
            a_stub_does_not_take_the_key_of_the_message
            copies_and_conflicts_are_counted
            an_event_may_be_remembered_for_a_time_of_its_own
            what_was_signed_before_is_parked_under_another_id
            when_suspects_are_full_one_more_is_a_copy
            what_is_kept_beside_an_event_is_linked_once
        );
        $crate::store_suite!(@leasing $fixture;
            a_lease_carries_what_came
            events_of_one_lane_in_one_webhook_are_one_item
            a_lane_gives_one_item_at_a_time_in_order
            lanes_do_not_wait_for_each_other
            a_lease_says_whose_its_events_are
            resting_accounts_are_passed_by
            channels_are_leased_apart
            a_lease_that_ran_out_is_taken_over
            an_extended_lease_stays
            an_extension_after_takeover_is_refused
            two_instances_never_hold_the_same_lane
            a_dead_instances_lease_holds_until_it_ends
            a_crash_gives_the_work_back_with_a_higher_fence
            a_worker_outside_keeps_its_lease_over_a_crash
            new_work_wakes_who_waits
            a_story_of_many_attempts_stays_short
            what_is_leased_is_with_the_bot
            what_is_with_the_bot_goes_by_the_joined_name
        );
        $crate::store_suite!(@settling $fixture;
            a_delivered_item_is_gone
            a_late_answer_is_refused
            an_answer_counts_once
            a_lease_that_ran_out_untaken_may_still_be_settled
            a_retry_waits_and_counts
            handing_back_does_not_count
            what_is_handed_back_for_a_reason_shows_it_and_does_not_count
            a_call_that_was_cut_counts_and_is_not_charged
            a_parked_item_leaves_the_lane_and_comes_back_by_redrive
            redrive_by_event_channel_and_all
            a_replay_is_delivered_again_with_a_nonce
            an_answer_is_kept_for_every_event_of_the_item
        );
        $crate::store_suite!(@asking $fixture;
            kept_and_quarantined_events_are_shown_and_not_delivered
            states_and_attempts_tell_the_story
            many_events_are_read_together_as_each_by_itself
            lists_are_paged_and_filtered
            purge_forgets_old_events_and_nothing_open
            purge_keeps_a_body_that_others_need
            a_purge_step_removes_a_bounded_number
            a_purge_with_two_retentions_comes_to_its_end
            the_number_of_a_replay_is_not_given_twice
            stats_count_what_is_there
        );
        $crate::store_suite!(@registering $fixture;
            a_setting_is_remembered_once
            a_setting_is_amended_only_as_it_was_seen
            who_has_amended_is_told_so_whatever_follows
            a_register_ends_after_its_time
            the_last_amend_says_how_long
            what_is_over_is_put_anew_by_one
            a_register_holds_so_much
            purge_forgets_registers_that_are_over
        );
        $crate::store_suite!(@claiming $fixture;
            a_claim_has_one_holder_and_one_completion
            many_claim_a_key_and_one_gets_it
            a_dead_holder_is_followed_by_one_other
            a_late_completion_counts_until_another_has_begun
            a_claim_that_is_held_waits_for_a_person
            a_batch_is_decided_in_order
            a_value_is_set_once_and_ends
            a_claim_holds_so_much
            claims_are_listed_newest_first
            so_many_claims_are_kept
            purge_forgets_claims_that_are_over
            a_claim_outlives_a_clock_that_was_set_back
        );
        $crate::store_suite!(@filing $fixture;
            a_piece_is_read_as_it_was_put
            pieces_are_counted_by_channel
            pieces_of_a_name_are_dropped_together
            purge_forgets_pieces_after_their_time
        );
        $crate::store_suite!(@forgetting $fixture;
            what_is_over_loses_its_words_and_keeps_its_key
            what_is_open_keeps_its_words
            who_came_in_the_same_webhook_keeps_his_texts
        );
        $crate::store_suite!(@sending $fixture;
            a_message_is_recorded_before_it_leaves
            the_same_request_is_one_message
            a_request_id_belongs_to_its_channel
            messages_of_a_thread_leave_in_order
            replies_go_before_the_rest
            a_message_for_later_keeps_nobody_waiting
            a_message_for_later_joins_its_thread_when_it_is_due
            resting_and_paused_accounts_send_nothing
            a_send_not_begun_is_handed_out_again
            a_begun_send_that_was_lost_is_in_doubt
            one_in_doubt_keeps_nobody_waiting
            a_status_settles_a_send_in_doubt
            a_status_during_the_send_is_proof
            early_statuses_are_taken_over
            an_early_status_is_given_up_after_the_longest_retention
            an_echo_settles_only_the_message_it_names
            what_a_look_up_found_is_no_other_message_of_ours
            a_persons_retry_is_a_new_try_with_its_own_id
            only_its_own_failures_are_charged_to_a_message
            a_message_between_two_tries_is_queued
            retry_and_cancel_do_what_a_person_says
            replies_enter_the_outbox_with_the_completion
            two_workers_share_the_outbox
        );
        $crate::store_suite!(@doubting $fixture;
            a_doubt_outlives_the_tries_after_it
            a_message_is_retried_so_often
            one_that_was_heard_of_is_not_sent_again
            one_that_was_heard_of_after_its_lease_is_not_begun
            a_name_of_an_earlier_round_is_not_found_again
            a_begun_send_cannot_be_cancelled_as_if_it_had_not_gone_out
            an_outcome_told_after_its_lease_ends_the_doubt
            an_outcome_told_late_leaves_a_later_try_alone
            a_refusal_told_late_leaves_the_lane_in_order
        );
        $crate::store_suite!(@room $fixture;
            an_outbox_takes_so_many_of_an_account
            replies_are_not_refused_for_the_rest
            replies_without_room_are_kept_with_the_item
            kept_replies_go_out_by_redrive
            a_redrive_looks_at_so_many
        );
        $crate::store_suite!(@clocks $fixture;
            a_clock_set_back_holds_nothing_up
            keys_outlive_a_clock_that_is_set
            rows_from_the_future_stop_no_purge
            a_thread_from_the_future_goes_with_its_words
            leases_given_after_a_clock_was_set_back_hold
            what_comes_after_a_restart_is_not_read
        );
        $crate::store_suite!(@talking $fixture;
            a_message_makes_and_updates_its_thread
            two_accounts_never_share_a_thread
            one_person_is_one_thread
            a_thread_is_read_backwards_in_pages
            what_came_in_is_delivered_and_read_once_it_was_marked
            threads_are_listed_newest_first
            a_thread_goes_with_the_last_of_what_was_said
            last_words_do_not_outlive_what_said_them
            an_outgoing_message_keeps_its_thread
        );
        $crate::store_suite!(@turning $fixture;
            messages_in_a_quiet_time_are_one_turn
            a_turn_ends_when_it_lasts_too_long_or_is_full
            a_turn_is_repeated_with_exactly_its_members
            an_open_turn_outlives_a_crash
            a_turn_is_parked_redriven_and_purged_as_a_whole
            what_is_not_gathered_ends_a_turn_and_keeps_its_place
            a_join_of_lanes_ends_their_turns
            who_waits_in_one_lane_under_two_names_has_one_turn
            a_turn_is_full_whatever_the_names_in_it
            a_join_in_a_webhook_ends_the_turns_of_all_its_names
            what_is_in_line_by_an_alias_ends_the_turn_there
            a_name_under_which_nothing_waits_ends_no_turn
            each_message_is_in_one_turn_with_two_instances_at_once
        );
        $crate::store_suite!(@joining $fixture;
            joined_lanes_are_one_line
            what_is_in_flight_at_the_join_may_end
            what_comes_again_after_a_join_is_in_line_by_its_number
            joined_leases_that_run_out_are_taken_over_together
            a_late_answer_counts_until_the_joined_lane_is_taken
            a_wait_is_not_cut_short_by_a_join
            three_names_of_a_person_are_one_lane
            joined_lanes_are_joined_again
            a_lane_is_joined_into_one_where_nothing_waits
            what_is_delivered_again_waits_in_the_lane_of_today
            what_teaches_no_names_goes_by_those_that_are_known
            names_are_joined_in_the_middle_of_a_webhook
            joined_lanes_outlive_a_crash
            what_joins_a_joined_name_stays_with_it_over_a_crash
            many_that_wait_are_joined
            lanes_of_another_channel_are_joined_when_the_name_comes_there
            names_learned_at_once_lead_to_one
            joined_lanes_send_in_one_line
            what_is_being_sent_at_the_join_may_end
            sends_of_joined_lanes_that_were_lost_are_handed_out_in_turn
            what_comes_back_to_its_thread_comes_to_the_joined_lane
            every_name_of_a_person_leads_to_the_thread_that_goes_on
        );
    };
    (@$area:ident $fixture:expr; $($case:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                if let Some(fixture) = $crate::store_fixture::MaybeFixture::fixture($fixture) {
                    $crate::store_suite::$area::$case(&fixture).await;
                }
            }
        )+
    };
}
