"""Every safety rule broken on purpose, and who notices: `python -m tests.sim.broken [RULE …]`.

Prints a table: rule, how it is broken, the promise that goes red, the seed. Each break must be
noticed within its stated number of seeds; a run without the break keeps every promise at the same
seed (`test_broken.py`). Where no seed can notice, because the rule is about bytes, real disks or
speed, a directed test must go red.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import pytest

from tests.sim.attacks_raft import an_old_answer
from tests.sim.breaks import access as a
from tests.sim.breaks import backups as b
from tests.sim.breaks import compaction as c
from tests.sim.breaks import decisions as d
from tests.sim.breaks import groups as g
from tests.sim.breaks import levels as v
from tests.sim.breaks import moves as m
from tests.sim.breaks import nodes as n
from tests.sim.breaks import parked as p
from tests.sim.breaks import queues as q
from tests.sim.breaks import raft as r
from tests.sim.breaks import stores as s
from tests.sim.breaks import subscriptions as u
from tests.sim.breaks import transactions as t
from tests.sim.breaks import wire as w
from tests.sim.breaks.harnesses import (
    Cluster,
    Deciding,
    Directed,
    Forged,
    Harness,
    Losing,
    Members,
    Moving,
    Raft,
    Rights,
    Script,
    Subscribers,
    Surviving,
    SurvivingDecisions,
    SurvivingGroups,
    Waiting,
    verdict,
)
from tests.sim.breaks.queues import Patch
from tests.sim.crowd_scenario import a_crowd_appears, a_crowd_changes_hands, a_crowd_stands_still


@dataclass(frozen=True, slots=True)
class Break:
    """One rule broken in one way."""

    rule: str
    by: Callable[[Patch], None]
    harness: Harness
    seeds: tuple[int, ...] = (0,)
    """Known to notice."""
    within: int = 1
    """Some seed of so many from 0 on notices."""
    thorough: bool = False
    """Left to `make verify`: it takes long, and its rule is broken in another way too."""

    @property
    def how(self) -> str:
        """What is broken, in words."""
        text = " ".join((self.by.__doc__ or "").split()).partition(": ")[2]
        return text[:1].upper() + text[1:].rstrip(".")

    def __str__(self) -> str:
        return f"{self.rule}-{self.by.__name__}"

    def noticed(self, seed: int) -> str:
        """Run one seed with the rule broken: the promise that goes red, or ""."""
        with pytest.MonkeyPatch.context() as patch:
            self.by(patch)
            return verdict(self.harness, seed)


RULES_AT_BROKERS: Final = "nodes.test_broker_rules:"
RULES_AT_NAME_SERVERS: Final = "metadata.test_name_server:"
NODE_REQUESTS: Final = "metadata.test_node_requests:"
JOINING: Final = "metadata.test_joining:"
FEATURE_LEVELS: Final = "metadata.test_feature_levels:"
RULES_OF_RAFT: Final = "metadata.raft.test_rules:"
COMMITTER: Final = "nodes.disk.test_committer:"
COORDINATORS: Final = "nodes.groups.test_group_coordinator:"
REQUESTS: Final = "nodes.groups.test_member_requests:"
OWNERS: Final = "nodes.requests.test_owners:test_g7_an_invented_owner_epoch_locks_nobody_out"
SUBSCRIPTIONS: Final = "nodes.subscriptions.test_subscription_handler:"
DECISIONS: Final = "metadata.tables.test_transaction_table:"
LOSSES: Final = "metadata.state.test_losses:"
RECOVERIES: Final = "metadata.state.test_recoveries:"
MOVES: Final = "metadata.state.test_moves:"
TAIL_REPORTS: Final = "nodes.replication.test_tail_reports:"
ROLES: Final = "nodes.test_replica_roles:"
RESTORED: Final = "metadata.transactions.test_views:test_a_restored_state_is_the_same"
BREAKS: Final = (
    Break("Q1", q.acks_before_the_sync, Cluster(), within=20),
    Break("Q1", q.a_leader_counts_itself_alone, Cluster(), within=20),
    Break("Q1", q.the_leaders_disk_does_not_count, Cluster(), within=20),
    Break(
        "Q1",
        s.committers_tell_too_early,
        Directed(COMMITTER + "test_tokens_that_gather_during_a_sync_share_the_next_one"),
    ),
    Break("Q2", q.leads_by_old_metadata, Cluster("restart unseen"), within=20),
    Break("Q2", q.a_start_ends_no_leadership, Cluster("restart unseen"), within=20),
    Break("Q3", q.another_store_changes_nothing, Cluster("empty disk"), within=20),
    Break(
        "Q3",
        c.copies_are_not_awaited,
        Directed(
            "nodes.compaction.test_compactor:"
            "test_a_follower_without_the_copies_does_not_join_before_it_has_them"
        ),
    ),
    Break(
        "Q3",
        s.lost_stores_are_forgotten,
        Directed(
            "metadata.state.test_elections:test_q3_the_right_disk_that_comes_back_leads_again"
        ),
    ),
    Break("Q4", q.positions_count_uncompared, Cluster("two histories"), within=20),
    Break(
        "Q4", q.nothing_is_ever_cut, Cluster("two histories"), seeds=(1,), within=20, thorough=True
    ),
    Break("Q5", q.late_answers_are_appended, Cluster("late answers"), within=20),
    Break("Q6", q.who_is_asked_for_does_not_count, Cluster("lost growth"), seeds=(2,), within=20),
    Break("Q6", q.older_processes_join, Cluster("late growth"), within=20),
    Break("Q6", q.the_hw_is_enough_to_join, Cluster("slow follower"), seeds=(6,), within=20),
    Break("Q7", q.one_copy_is_enough, Cluster("last one"), within=20),
    Break("Q7", q.nobody_stays_eligible, Cluster("last one"), within=20, thorough=True),
    Break("Q8", q.beyond_the_hw_is_illegal, Cluster(), within=20),
    Break("Q8", q.ends_told_too_early, Cluster(), within=20),
    Break(
        "Q8",
        q.followers_hear_no_hw,
        Directed(RULES_AT_BROKERS + "test_q8_an_hw_move_wakes_held_replicates"),
    ),
    Break("Q8", q.what_has_no_room_is_forgotten, Cluster(), seeds=(7,), within=20, thorough=True),
    Break("Q9", q.producers_without_windows, Cluster(), within=20),
    Break("Q9", q.duplicates_answered_at_once, Cluster("sent again"), within=20),
    Break("Q9", p.retries_park_again, Waiting(), within=20),
    Break("Q10", s.the_end_is_written_later, Cluster(), within=20),
    Break("Q10", s.append_time_follows_the_clock, Cluster(), within=20),
    Break("Q11", s.leases_never_end, Cluster("forgotten leader"), within=20, thorough=True),
    Break(
        "Q11",
        s.leases_from_the_answer,
        Directed(RULES_AT_BROKERS + "test_q11_the_lease_counts_from_sending_the_heartbeat"),
    ),
    Break(
        "Q11",
        s.new_metadata_counts_at_once,
        Directed(ROLES + "test_q11_metadata_whose_roles_go_in_slices_is_not_known_before_the_last"),
    ),
    Break(
        "Q11",
        s.changes_put_versions_off,
        Directed(ROLES + "test_q11_a_version_is_reached_though_changes_never_end"),
    ),
    Break(
        "Q11",
        s.new_queues_hold_up_versions,
        Directed(
            ROLES + "test_q11_queues_that_are_yet_to_be_opened_keep_no_version_from_being_reached"
        ),
    ),
    Break("Q11", s.roles_change_all_at_once, Script(a_crowd_changes_hands), thorough=True),
    Break("Q11", s.answers_look_at_all_news, Script(a_crowd_appears)),
    Break("Q11", s.a_silence_of_all_fences_all, Script(a_crowd_stands_still)),
    Break(
        "Q12",
        s.state_runs_ahead,
        Directed("nodes.log.test_index:test_nothing_above_the_hw_is_found"),
    ),
    Break("Q12", s.lookups_begin_again, Cluster(), within=2),
    Break("Q12", s.runs_are_later_than_told, Cluster(), seeds=(1,), within=2),
    Break(
        "Q12",
        c.compaction_runs_ahead,
        Directed("nodes.compaction.test_compaction:test_what_lies_above_the_hw_supersedes_nothing"),
    ),
    Break("Q12", p.releases_before_the_hw, Waiting(), within=20, thorough=True),
    Break("Q12", p.parkings_run_ahead, Waiting(), seeds=(4,), within=20, thorough=True),
    Break(
        "Q12",
        u.whole_cursors_keep_to_the_clock,
        Directed(
            SUBSCRIPTIONS + "test_q12_a_busy_queue_with_a_subscription_keeps_its_bound",
        ),
    ),
    Break(
        "Q12",
        u.whole_cursors_wait_for_a_pause,
        Directed(
            SUBSCRIPTIONS + "test_q12_acknowledgements_under_way_do_not_hold_up_retention",
        ),
    ),
    Break("Q13", s.suspects_are_trusted, Cluster("suspect"), seeds=(1,), within=20),
    Break(
        "Q13",
        s.journals_prove_nothing,
        Directed(
            "nodes.disk.test_rocks_storage:test_q13_a_flipped_bit_in_the_journal_makes_the_store_suspect"
        ),
    ),
    Break(
        "Q13",
        s.segments_are_used_again_at_once,
        Directed(
            "nodes.disk.test_write_journal:test_q13_no_segment_is_used_again_before_rocksdb_has_its_writes"
        ),
    ),
    Break(
        "Q13",
        s.logs_open_in_the_default_mode,
        Directed(
            "nodes.disk.test_rocks_storage:test_q13_a_flipped_bit_in_an_older_store_s_log_makes_it_suspect"
        ),
    ),
    Break(
        "Q14",
        s.manifests_are_believed,
        Directed(
            "nodes.disk.test_damaged_manifest:"
            "test_q14_a_manifest_that_ends_too_early_behind_a_whole_record_removes_no_tables"
        ),
    ),
    Break("Q14", s.the_damaged_stay, Cluster("flipped bits"), within=20),
    Break("Q14", s.failed_syncs_are_repeated, Cluster("failed sync"), within=20),
    Break(
        "Q14",
        s.committers_go_on,
        Directed(COMMITTER + "test_q14_a_failed_sync_is_told_and_never_repeated"),
    ),
    Break(
        "Q15",
        s.commits_outlive_their_log,
        Directed(LOSSES + "test_q15_a_shorter_replica_cuts_to_its_end"),
    ),
    Break("Q15", s.commits_outlive_their_log, Losing(), within=20),
    Break(
        "Q15",
        s.a_new_disk_leads_unnoticed,
        Directed(LOSSES + "test_q15_the_same_where_the_topic_allowed_it_before"),
    ),
    Break("Q15", s.a_new_disk_leads_unnoticed, Losing(), within=20, thorough=True),
    Break(
        "Q15",
        s.losses_are_reported_before_the_sync,
        Directed("nodes.replication.test_loss_reports:test_it_waits_until_that_is_on_its_disk"),
    ),
    Break(
        "Q15",
        s.readers_outlive_their_log,
        Directed(
            "client.fetch.test_fetcher:"
            "test_q15_a_reader_of_a_queue_that_lost_messages_goes_back_to_its_new_ones"
        ),
    ),
    Break("Q15", s.readers_outlive_their_log, Losing(), seeds=(3,), within=20, thorough=True),
    Break(
        "Q15",
        s.acknowledgements_outlive_their_log,
        Directed(
            "client.subscriptions.test_subscriber_state:"
            "test_q15_what_was_known_of_lost_messages_is_not_said_of_those_that_get_their_offsets"
        ),
    ),
    Break(
        "R1",
        r.gaps_go_unseen,
        Directed("metadata.raft.test_raft_links:test_r1_nothing_behind_a_gap_is_delivered"),
    ),
    Break("R2", r.appends_cut_every_overlap, Raft(), seeds=(6,), within=80),
    Break("R3", r.rejections_step_back, Raft(), within=40),
    Break("R4", r.votes_are_forgotten, Raft(), within=80),
    Break(
        "R5",
        r.commits_wait_for_the_heartbeat,
        Directed(
            RULES_OF_RAFT + "test_r5_a_command_is_committed_by_one_exchange_without_a_heartbeat"
        ),
    ),
    Break("R6", r.every_snapshot_is_installed, Raft(), seeds=(12,), within=80),
    Break("R7", r.openings_wipe_the_journal, Raft(), within=40),
    Break("R8", r.messages_leave_before_the_sync, Raft(), within=40),
    Break(
        "R9",
        r.an_empty_folder_is_taken,
        Directed("metadata.raft.test_journal:test_an_empty_folder_needs_an_explicit_creation"),
    ),
    Break("R9", r.who_joined_once_joins_again, Cluster("empty member"), within=20),
    Break(
        "R9",
        r.newcomers_know_only_their_own_log,
        Directed(
            JOINING
            + "test_r9_who_was_added_and_heard_nothing_yet_votes_for_those_whose_log_names_it"
        ),
    ),
    Break(
        "R9",
        r.processes_of_one_name_server_look_alike,
        Directed(
            "metadata.test_name_server_rivals:test_r9_a_copy_of_the_leader_that_nobody_dials_ends"
        ),
    ),
    Break("R10", r.answers_of_any_term_count, Script(an_old_answer)),
    Break(
        "R10",
        r.votes_count_as_often_as_they_come,
        Directed(RULES_OF_RAFT + "test_r10_a_vote_counts_once_per_member"),
    ),
    Break(
        "R10",
        r.old_sessions_are_heard,
        Directed(
            RULES_OF_RAFT + "test_r10_a_new_session_empties_the_outbox_and_old_frames_are_dropped"
        ),
    ),
    Break(
        "R11",
        r.hints_ask_for_the_first,
        Directed(
            RULES_OF_RAFT + "test_r11_a_hint_names_what_is_surely_missing_at_most_once_a_heartbeat"
        ),
    ),
    Break(
        "R11",
        r.commits_are_forgotten,
        Directed(RULES_OF_RAFT + "test_r11_the_commit_index_survives_a_restart"),
    ),
    Break("R12", r.anybody_changes_members, Cluster("strangers"), within=20, thorough=True),
    Break("R12", r.nobody_asks_newcomers, Cluster("strangers"), within=20),
    Break(
        "R12",
        r.majorities_are_not_minded,
        Directed(RULES_AT_NAME_SERVERS + "test_r12_what_would_leave_no_majority_is_refused"),
    ),
    Break(
        "R12",
        r.changes_come_all_at_once,
        Raft(changing=True),
        seeds=(30,),
        within=80,
        thorough=True,
    ),
    Break(
        "R12",
        r.changes_name_one_name_each,
        Directed(
            RULES_OF_RAFT + "test_r12_who_joins_counts_as_the_others_do_whoever_it_was_told_of"
        ),
    ),
    Break(
        "R12",
        r.added_name_servers_are_forgotten,
        Directed(
            "nodes.cluster.test_metadata_watcher:"
            "test_name_servers_that_were_added_are_found_from_an_older_configuration"
        ),
    ),
    Break(
        "R12",
        r.learned_name_servers_are_not_noted,
        Directed("nodes.disk.test_data_folder:test_the_folder_remembers_the_name_servers"),
    ),
    Break(
        "R13",
        r.the_silence_is_the_brokers,
        Directed(RULES_AT_NAME_SERVERS + "test_r13_a_paused_leader_that_wakes_up_fences_nobody"),
    ),
    Break(
        "R13",
        r.fences_of_any_term,
        Directed("metadata.state.test_elections:test_r13_a_fence_of_another_term_is_refused"),
    ),
    Break(
        "R13",
        g.new_coordinators_grant_nothing,
        Directed(COORDINATORS + "test_a_new_coordinator_grants_full_sessions_first"),
    ),
    Break(
        "R13",
        g.the_silence_is_the_members,
        Directed(COORDINATORS + "test_nobody_is_expired_for_what_nobody_could_hear"),
    ),
    Break("R14", r.watches_answer_older, Cluster(), seeds=(4,), within=20),
    Break("R14", r.metadata_goes_back, Cluster(), seeds=(4,), within=20, thorough=True),
    Break("R15", r.survivors_go_on_as_if_nothing_was_lost, Surviving(), within=20),
    Break("R15", r.what_is_unknown_is_deleted, Surviving(), within=20),
    Break("R15", r.survivors_elect_whom_they_know, Surviving(), seeds=(3,), within=20),
    Break(
        "R15",
        r.groups_go_on_in_their_epochs,
        Directed(RECOVERIES + "test_r15_epochs_of_groups_are_above_what_was_lost"),
    ),
    Break("R15", r.groups_go_on_in_their_epochs, SurvivingGroups(), within=20),
    Break(
        "R15",
        r.names_stay_with_whom_a_survivor_knows,
        Directed(RECOVERIES + "test_r15_a_process_whose_start_was_lost_takes_its_name_again"),
    ),
    Break(
        "R15",
        r.former_replicas_are_counted_on,
        Directed(
            RECOVERIES + "test_r15_a_replica_that_was_moved_away_stands_for_none_of_the_others"
        ),
    ),
    Break(
        "R15",
        r.lost_moves_are_not_awaited,
        Directed(RECOVERIES + "test_r15_brokers_that_a_lost_move_may_have_brought_are_awaited"),
    ),
    Break("R15", r.decisions_are_numbered_as_before, SurvivingDecisions(), seeds=(4,)),
    Break(
        "R15",
        r.log_ends_are_told_too_early,
        Directed(TAIL_REPORTS + "test_r15_log_ends_are_reported_once_all_queues_have_their_roles"),
    ),
    Break(
        "R15",
        r.parts_of_log_ends_are_complete,
        Directed(TAIL_REPORTS + "test_r15_a_report_in_parts_is_complete_with_its_last_part"),
    ),
    Break("G1", g.releases_do_not_commit, Members(calm=True), within=20, thorough=True),
    Break("G1", g.queues_are_given_at_once, Members(calm=True), within=20, thorough=True),
    Break(
        "G1",
        g.commits_are_answered_at_once,
        Directed(REQUESTS + "test_a_commit_is_answered_once_it_is_in_the_log"),
    ),
    Break(
        "G2",
        g.drains_never_end,
        Directed(COORDINATORS + "test_a_member_that_does_not_release_in_time_is_fenced"),
    ),
    Break(
        "G3",
        g.commits_go_beyond_the_end,
        Directed(REQUESTS + "test_a_release_beyond_the_end_is_refused_and_stays_owned"),
    ),
    Break(
        "G3",
        g.commits_go_back,
        Directed("metadata.groups.test_offsets:test_a_commit_goes_forward_only"),
    ),
    Break("G4", g.who_asks_for_nothing_stays, Members(), seeds=(1,), within=20),
    Break("G5", g.strategies_deal_the_retries, Members(), within=20),
    Break("G5", g.all_topics_are_dealt_together, Members(), within=20, thorough=True),
    Break("G6", g.ends_are_not_counted, Members(), seeds=(4,), within=20, thorough=True),
    Break(
        "G6",
        g.steps_are_not_small,
        Directed("client.groups.test_trials:test_steps_grow_until_all_that_was_there_is_done"),
    ),
    Break("G6", g.messages_are_tried_together, Members(), seeds=(8000001,), thorough=True),
    Break("G7", g.owners_need_no_proof, Forged()),
    Break("G7", g.owner_proofs_are_anybodys, Directed(OWNERS)),
    Break("T1", t.commits_release_all, Deciding(), within=20, thorough=True),
    Break("T1", t.every_commit_wins, Deciding(), seeds=(3,), within=20, thorough=True),
    Break("T1", t.aborts_are_forgotten, Deciding(), seeds=(1,), within=20, thorough=True),
    Break("T1", d.older_producers_decide, Deciding(), seeds=(4,), within=20, thorough=True),
    Break("T1", d.offsets_move_with_every_commit, Deciding(), seeds=(2,), within=20, thorough=True),
    Break(
        "T1",
        d.lower_sequences_stay_open,
        Directed(DECISIONS + "test_the_first_commit_of_a_sequence_wins_for_ever"),
    ),
    Break(
        "T1",
        d.an_id_changes_hands,
        Directed(DECISIONS + "test_an_application_id_has_one_owner"),
    ),
    Break("T1", d.snapshots_forget_aborts, Directed(RESTORED)),
    Break("T2", t.drops_by_its_own_clock, Deciding(), seeds=(1,), within=20),
    Break("T2", d.what_is_closed_is_left_alone, Deciding(), within=20, thorough=True),
    Break("T3", t.nobody_goes_on, Deciding(), seeds=(2,), within=20, thorough=True),
    Break("T3", t.goes_on_uncertain, Deciding(), seeds=(4,), within=20, thorough=True),
    Break("T3", t.reports_what_is_appended, Deciding(), seeds=(1,), within=20),
    Break("T3", t.one_report_is_enough, Deciding(), within=20, thorough=True),
    Break("T3", t.parts_are_seen, Deciding(), within=20, thorough=True),
    Break("T3", d.snapshots_forget_decisions, Directed(RESTORED)),
    Break("P10", u.acks_are_answered_at_once, Subscribers(), within=20, thorough=True),
    Break("P10", u.acks_are_not_written_down, Subscribers(), within=20),
    Break("P10", u.counts_are_not_written_down, Subscribers(), within=20),
    Break("P10", u.the_floor_is_all_that_is_known, Subscribers(), within=20),
    Break(
        "P10",
        u.new_leaders_serve_at_once,
        Directed(
            SUBSCRIPTIONS
            + "test_a_new_leader_serves_nobody_before_it_knows_all_that_was_acknowledged"
        ),
    ),
    Break(
        "P10",
        u.deliveries_need_no_lease,
        Directed(SUBSCRIPTIONS + "test_q11_past_the_lease_nothing_is_delivered"),
    ),
    Break("P10", u.refused_acks_count_as_confirmed, Subscribers(), seeds=(3,), within=20),
    Break(
        "P10",
        u.answers_outlive_their_leadership,
        Directed(
            SUBSCRIPTIONS
            + "test_p10_a_leadership_that_ends_in_the_turn_of_an_acknowledgement_does_not_confirm_it"
        ),
    ),
    Break(
        "P10",
        u.a_consumer_says_what_is_new,
        Directed("client.subscriptions.test_beginnings:test_p10_added_queues_are_read_whole"),
    ),
    Break(
        "P10",
        u.a_name_is_anybodys,
        Directed(SUBSCRIPTIONS + "test_p10_a_name_has_one_owner"),
    ),
    Break("P10", u.permits_outlive_their_session, Subscribers(), within=20, thorough=True),
    Break("P10", u.batches_are_cut_to_the_permits, Subscribers(), within=20, thorough=True),
    Break(
        "P10", u.moving_slots_are_not_drained, Subscribers(), seeds=(5,), within=20, thorough=True
    ),
    Break(
        "P10",
        u.what_comes_back_holds_nothing_up,
        Subscribers(),
        seeds=(5,),
        within=20,
        thorough=True,
    ),
    Break("P10", u.what_is_postponed_holds_nothing_up, Subscribers(), within=20, thorough=True),
    Break("P10", u.anybody_is_exclusive, Subscribers(), seeds=(3,), within=20),
    Break("P10", u.the_next_one_does_not_wait, Subscribers(), within=20),
    Break("P10", u.what_comes_again_is_not_judged, Subscribers(), within=20),
    Break("P10", u.what_a_consumer_had_is_forgotten, Subscribers(), within=20, thorough=True),
    Break("P10", u.time_outs_come_to_nothing, Subscribers(), seeds=(3,), within=20, thorough=True),
    Break(
        "W1",
        w.strangers_get_no_answer,
        Directed(
            "wire.test_session:test_w1_a_new_routing_id_is_asked_for_hello_and_requests_are_sent_again"
        ),
    ),
    Break(
        "W1",
        w.requests_are_not_sent_again,
        Directed(
            "wire.test_session:test_w1_a_new_routing_id_is_asked_for_hello_and_requests_are_sent_again"
        ),
    ),
    Break("W2", w.checksums_are_not_compared, Cluster(rot=True), within=20, thorough=True),
    Break("W2", p.bodies_are_not_compared, Deciding(), seeds=(1,), within=20),
    Break(
        "W3",
        w.lengths_are_not_bounded,
        Directed("wire.test_compression:test_a_zstd_bomb_costs_no_memory", (True,)),
    ),
    Break(
        "S1",
        w.routing_ids_are_identities,
        Directed(
            "wire.test_identities:test_s1_who_takes_over_a_routing_id_has_no_session",
            ("alice/laptop#1", "mallory/phone#2"),
        ),
    ),
    Break("S1", w.routing_ids_are_identities, Rights(), within=20),
    Break("A1", a.denials_do_not_win, Rights(), seeds=(2,), within=20, thorough=True),
    Break("A1", a.the_disabled_are_served_until_they_reconnect, Rights(), seeds=(1,), within=20),
    Break("A1", a.decisions_are_remembered, Rights(), seeds=(2,), within=20),
    Break("A1", a.what_is_held_is_answered, Rights(), seeds=(1,), within=20, thorough=True),
    Break(
        "A1",
        a.what_is_not_checked_yet_is_answered,
        Directed("nodes.test_rights_review:test_a_pull_that_is_not_checked_yet_gets_nothing"),
    ),
    Break("A2", a.rules_go_back, Rights(), within=20),
    Break("A3", a.names_are_shown_to_all, Rights(), seeds=(1,), within=20),
    Break("A3", a.rights_that_change_show_nothing, Rights(), seeds=(1,), within=20, thorough=True),
    Break("A4", a.keys_end_by_the_nodes_clocks, Rights(), seeds=(2,), within=20),
    Break("A6", a.producer_ids_are_anybodys, Rights(), seeds=(1,), within=20),
    Break(
        "A5",
        a.the_oldest_result_of_all_goes,
        Directed(
            "metadata.state.test_proposal_dedup:test_a5_results_of_who_has_fewer_proposers_stay"
        ),
    ),
    Break(
        "A6",
        a.consumers_are_anybodys,
        Directed(
            "nodes.subscriptions.test_consumers_of_users:"
            "test_a6_another_users_consumer_cannot_be_spoken_for"
        ),
    ),
    Break(
        "A6",
        a.recalls_are_anybodys,
        Directed(
            "nodes.parking.test_recalls_of_users:test_a6_what_another_user_has_sent_is_not_recalled"
        ),
    ),
    Break(
        "A6",
        a.members_are_anybodys,
        Directed(
            "nodes.groups.test_members_of_users:test_a6_nobody_speaks_for_another_users_member"
        ),
    ),
    Break(
        "A6",
        a.names_of_members_are_anybodys,
        Directed(
            "nodes.groups.test_members_of_users:test_a6_another_user_does_not_take_the_name", ("",)
        ),
    ),
    Break(
        "A7",
        n.nodes_send_everything,
        Directed(NODE_REQUESTS + "test_a7_a_broker_asks_nothing_that_is_not_a_brokers"),
    ),
    Break(
        "A7",
        n.nodes_are_of_any_kind,
        Directed(NODE_REQUESTS + "test_a7_a_broker_is_no_name_server_and_a_name_server_no_broker"),
    ),
    Break("A7", n.the_raft_listener_takes_all_keys, Rights(), within=20),
    Break(
        "A7",
        n.claims_of_brokers_are_believed,
        Directed(NODE_REQUESTS + "test_a7_a_broker_proposes_nothing_for_others"),
    ),
    Break(
        "A7",
        n.removed_replicas_are_served_on,
        Directed(
            "nodes.replication.test_replicate_handler:"
            "test_a7_who_has_no_replica_any_more_gets_nothing_though_it_goes_on_asking"
        ),
    ),
    Break("A8", a.readers_use_all_subscriptions, Rights(), within=20),
    Break(
        "A8",
        a.decisions_outlive_the_upgrade,
        Directed(
            "wire.access.test_access_book:"
            "test_what_is_remembered_goes_when_subscriptions_get_rights_of_their_own"
        ),
    ),
    Break(
        "S2",
        w.any_key_greets_as_a_node,
        Directed(
            "wire.test_identities:test_s2_nobody_greets_as_what_its_key_is_not",
            ("alice/laptop#1", "broker-2", "broker"),
        ),
    ),
    Break(
        "S3",
        w.answers_follow_the_routing_id,
        Directed(
            "wire.test_peer_routes:test_s3_an_address_leads_nowhere_once_its_connection_ended"
        ),
    ),
    Break(
        "S4",
        w.keys_count_if_nobody_refuses_them,
        Directed("wire.test_sockets_curve:test_s4_without_an_authenticator_nobody_gets_in"),
        thorough=True,
    ),
    Break(
        "S4",
        a.the_configuration_counts_against_the_state,
        Directed(
            "metadata.access.test_access_duties:"
            "test_s4_a_disabled_node_stays_out_whatever_the_configuration_lists"
        ),
    ),
    Break(
        "M7",
        v.levels_are_not_minded,
        Directed(FEATURE_LEVELS + "test_m7_nothing_that_the_leader_plans_is_beyond_the_level"),
    ),
    Break(
        "M7",
        v.nobody_hinders_an_upgrade,
        Directed(FEATURE_LEVELS + "test_m7_the_level_is_raised_once_all_were_heard"),
    ),
    Break(
        "M7",
        v.older_nodes_go_on,
        Directed(FEATURE_LEVELS + "test_m7_a_name_server_ends_where_the_level_is_beyond_it"),
    ),
    Break(
        "K1",
        b.backups_need_no_lease,
        Directed(
            "nodes.requests.test_backup_handler:test_k1_a_leader_without_its_lease_does_not_answer"
        ),
    ),
    Break(
        "K1",
        b.backups_trust_new_leaders,
        Directed(
            "nodes.requests.test_backup_handler:"
            "test_k1_a_new_leader_answers_once_it_knows_what_was_acknowledged"
        ),
    ),
    Break(
        "K1",
        b.gaps_are_passed_over,
        Directed("nodes.requests.test_backup_handler:test_k1_another_history_is_not_appended"),
    ),
    Break(
        "K2",
        b.later_decisions_are_copied,
        Directed(
            "nodes.requests.test_backup_handler:"
            "test_k2_reading_ends_before_a_decision_that_was_made_after_the_state"
        ),
    ),
    Break(
        "K3",
        b.late_acknowledgements_count,
        Directed("backup.test_backup_reader:test_k3_acknowledgements_after_the_cut_do_not_count"),
    ),
    Break(
        "K4",
        b.blocks_are_not_checked,
        Directed("backup.test_backup_reader:test_k4_a_damaged_block_is_not_restored"),
    ),
    Break(
        "K4",
        b.bases_are_pruned,
        Directed("backup.test_backup_pruning:test_k4_what_a_kept_backup_needs_stays"),
    ),
    Break(
        "K4",
        b.what_is_written_is_pruned,
        Directed(
            "backup.test_backup_pairs:test_k4_who_prunes_by_an_old_plan_removes_nothing_that_is_"
            "needed_by_now"
        ),
    ),
    Break(
        "K4",
        b.old_plans_are_carried_out,
        Directed(
            "backup.test_backup_pairs:test_k4_who_prunes_by_an_old_plan_removes_nothing_that_is_"
            "needed_by_now"
        ),
    ),
    Break(
        "K4",
        b.broken_bases_are_continued,
        Directed(
            "backup.test_backup_pairs:test_k4_a_backup_does_not_rest_on_a_file_that_is_not_whole",
            (2, "missing"),
        ),
    ),
    Break(
        "K4",
        b.folders_are_shared,
        Directed("backup.test_backup_pairs:test_k4_of_two_that_begin_at_once_one_writes"),
    ),
    Break(
        "K5",
        b.restoring_topics_are_used,
        Directed("nodes.requests.test_restore_handler:test_k5_nobody_reads_or_writes_meanwhile"),
    ),
    Break(
        "K5",
        b.restoring_topics_release,
        Directed(
            "nodes.requests.test_restore_handler:test_k5_nothing_is_removed_or_released_meanwhile"
        ),
    ),
    Break(
        "K5",
        b.other_backups_are_mixed_in,
        Directed("nodes.requests.test_restore_handler:test_k5_another_backup_is_not_mixed_in"),
    ),
    Break(
        "K6",
        b.undecided_transactions_are_listed_early,
        Directed(
            "nodes.requests.test_restore_handler:"
            "test_k6_a_queue_is_whole_once_all_that_waits_in_it_for_a_decision_is_known"
        ),
    ),
    Break(
        "K6",
        b.counters_begin_anew,
        Directed(
            "metadata.state.test_restores:test_k6_everything_that_counts_begins_above_the_backup"
        ),
    ),
    Break("M1", m.who_is_added_may_be_elected, Moving(), within=20),
    Break("M2", m.moves_end_with_the_first, Moving(), within=20),
    Break("M2", m.moves_end_some_other_time, Moving(), within=20),
    Break("M2", m.leaders_stay_outside, Moving(), within=20),
    Break(
        "M3",
        m.who_is_added_is_needed,
        Directed(MOVES + "test_needed_copies_are_counted_without_what_is_added"),
    ),
    Break(
        "M3",
        m.who_leaves_is_not_needed,
        Directed(MOVES + "test_needed_copies_are_counted_with_what_is_removed"),
    ),
    Break(
        "M3",
        m.the_removed_are_needed,
        Directed(MOVES + "test_nobody_stays_eligible_who_is_not_needed_without_the_removed_broker"),
    ),
    Break(
        "M3",
        m.a_lost_destination_is_not_made_up_for,
        Directed(MOVES + "test_a_removed_destination_ends_the_move_and_what_was_to_go_stays"),
        thorough=True,
    ),
    Break("M3", m.zones_are_not_counted, Moving(), seeds=(1,), within=20),
    Break(
        "M4",
        m.older_metadata_deletes,
        Directed(ROLES + "test_m4_metadata_that_is_older_than_the_process_deletes_nothing"),
    ),
    Break("M4", m.who_is_to_leave_deletes_at_once, Moving(), within=20),
    Break(
        "M4",
        m.who_is_added_back_goes_on,
        Directed(ROLES + "test_m4_a_replica_that_is_added_back_within_the_grace_begins_anew"),
    ),
    Break(
        "M4",
        m.the_former_store_is_read,
        Directed(ROLES + "test_m4_what_was_derived_of_a_replica_that_is_added_back_is_gone"),
        thorough=True,
    ),
    Break("M4", m.adding_changes_no_epoch, Moving(), within=20),
    Break(
        "M5",
        m.cancels_leave_anybody,
        Directed(MOVES + "test_no_cancellation_empties_the_isr_or_takes_the_last_leader"),
    ),
    Break("M6", m.who_is_drained_leads_on, Moving(), within=20),
    Break("M6", m.who_is_drained_gets_replicas, Moving(), within=20, thorough=True),
)


def search(broken: Break, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed that notices, and the promise that it says is broken."""
    for seed in seeds:
        found = broken.noticed(seed)
        if found:
            return seed, found
    return None


def main(arguments: list[str] | None = None) -> int:
    """Break the rules; 1 if somebody slept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="as SAFETY names them; all")
    parser.add_argument("--seeds", type=int, help="look at so many seeds instead of the stated")
    chosen = parser.parse_args(arguments)
    slept = 0
    sys.stdout.write("| rule | broken on purpose | noticed by | what goes red | first seed |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    for broken in BREAKS:
        if chosen.rules and broken.rule not in chosen.rules:
            continue
        tried = (
            1 if isinstance(broken.harness, Directed | Script) else chosen.seeds or broken.within
        )
        found = search(broken, range(tried))
        slept += found is None
        promise, seed = (found[1], str(found[0])) if found else (f"nothing in {tried} seeds", "")
        seed = "\N{EN DASH}" if isinstance(broken.harness, Directed | Script) else seed
        row = (broken.rule, broken.how, str(broken.harness), promise, seed)
        sys.stdout.write(f"| {' | '.join(row)} |\n")
        sys.stdout.flush()
    return 1 if slept else 0


if __name__ == "__main__":
    sys.exit(main())
