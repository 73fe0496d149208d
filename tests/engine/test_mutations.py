"""Break one rule of the engine at a time, in a copy of its source, and see that a test notices.

A rule that can be broken unnoticed is not tested, even if a test has its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from vmflow.errors import InternalError

from . import test_barriers, test_edges, test_flatness, test_fuse, test_ready, test_story, test_transitions
from .bench import Bench, copied_engine
from .simulation import simulate

Script = Callable[[Bench], None]

# The exceptions of failing tests; `InternalError` is the engine's own check, run after each turn.
FAILS = (AssertionError, InternalError, pytest.fail.Exception)

# Seeds that the random programs have to notice a broken rule.
SEEDS = range(100)


class Mutation(NamedTuple):
    """A rule, how to break it in the engine's source, and the tests that must fail then."""

    rule: str
    old: str
    new: str
    script: Script
    # Whether random programs notice as well.  They cannot where the broken rule makes things merely slower or larger.
    in_programs: bool


MUTATIONS = [
    Mutation(
        "a read waits for the write",
        """\
            if writer is not None:
                self._edge(writer, instruction, preschedulable, follows)
            readers = dependence.readers
            if readers is None:
""",
        """\
            readers = dependence.readers
            if readers is None:
""",
        test_edges.test_a_read_waits_for_the_write,
        in_programs=True,
    ),
    Mutation(
        "a write waits for the reads since the last write",
        "                    self._edge(reader, instruction, preschedulable, follows)\n",
        "                    pass\n",
        test_edges.test_a_write_waits_for_every_read_since_the_last_write,
        in_programs=True,
    ),
    Mutation(
        "a write waits for all of these reads, not for one",
        "                    self._edge(reader, instruction, preschedulable, follows)\n",
        "                    pass\n                for reader in list(readers)[-1:]:\n"
        "                    self._edge(reader, instruction, preschedulable, follows)\n",
        test_edges.test_a_write_waits_for_the_first_read_too,
        in_programs=True,
    ),
    Mutation(
        "a write waits for the write",
        """\
            if writer is not None:
                self._edge(writer, instruction, preschedulable, follows)
            readers = dependence.readers
            if readers is not None:
""",
        """\
            readers = dependence.readers
            if readers is not None:
""",
        test_edges.test_a_write_waits_for_the_write,
        in_programs=True,
    ),
    Mutation(
        "reads run together",
        "                readers[instruction] = None\n",
        """\
                for reader in readers:
                    self._edge(reader, instruction, preschedulable, follows)
                readers[instruction] = None
""",
        test_edges.test_reads_run_together,
        in_programs=False,
    ),
    Mutation(
        "self-edges are ignored",
        "        if source is target:\n            return\n",
        "",
        test_edges.test_an_instruction_that_writes_one_storage_twice_does_not_wait_for_itself,
        in_programs=True,
    ),
    Mutation(
        "outputs are consumed before inputs, which then meet the instruction itself",
        "            if writer is instruction:\n                continue\n",
        "",
        test_edges.test_outputs_are_consumed_before_inputs,
        in_programs=False,
    ),
    Mutation(
        "a write drops the accesses before it",
        "                dependence.readers = None\n            dependence.writer = instruction\n",
        "            dependence.writer = instruction\n",
        test_edges.test_a_write_drops_older_accesses,
        in_programs=False,
    ),
    Mutation(
        "an edge that already passes is not drawn",
        "            if source.state >= LAUNCHED:\n                return\n",
        "",
        test_edges.test_a_successor_that_comes_later_is_launched_behind_its_running_predecessor,
        in_programs=True,
    ),
    Mutation(
        "an edge passes on one stream only when its source is launched",
        "            if source.state >= LAUNCHED:\n                return\n",
        "            return\n",
        test_edges.test_a_successor_waits_for_an_unlaunched_predecessor_on_its_stream,
        in_programs=True,
    ),
    Mutation(
        "several operands of one producer draw one edge",
        "        if successors and successors[-1] is target:\n            return\n",
        "",
        test_edges.test_reading_one_storage_twice_draws_one_edge,
        in_programs=False,
    ),
    Mutation(
        "completion is in order per stream",
        """\
            while running.first is not None and running.first.state == DONE:
                instruction = running.popleft()
""",
        """\
            for instruction in [member for member in running if member.state == DONE]:
                running.remove(instruction)
""",
        test_edges.test_an_access_dropped_by_a_write_is_still_waited_for_through_it,
        in_programs=True,
    ),
    Mutation(
        "only the head of a stream is released",
        "            while running.first is not None and running.first.state == DONE:\n",
        "            while running.last is not None and running.last.state == DONE:\n",
        test_transitions.test_only_the_head_of_a_stream_is_erased,
        in_programs=True,
    ),
    Mutation(
        "across streams an edge needs its source finished",
        "        if preschedulable and (source.stream is target.stream or source.stream is follows):\n",
        "        if preschedulable:\n",
        test_edges.test_across_streams_a_launch_is_not_enough,
        in_programs=True,
    ),
    Mutation(
        "instructions that are not preschedulable need their source finished on the same stream too",
        "        if preschedulable and (source.stream is target.stream or source.stream is follows):\n",
        "        if source.stream is target.stream or source.stream is follows:\n",
        test_edges.test_an_instruction_that_is_not_preschedulable_needs_its_predecessor_finished,
        in_programs=True,
    ),
    Mutation(
        "on one stream a launch is enough",
        "        if preschedulable and (source.stream is target.stream or source.stream is follows):\n",
        "        if source.stream is follows:\n",
        test_edges.test_a_chain_on_one_stream_is_launched_in_one_turn,
        in_programs=False,
    ),
    Mutation(
        "being prescheduled is not being finished",
        "                successors = instruction.on_launch\n",
        """\
                successors = (instruction.on_launch or []) + (instruction.on_finish or [])
                instruction.on_finish = None
""",
        test_edges.test_being_prescheduled_is_not_being_finished,
        in_programs=True,
    ),
    Mutation(
        "a sequential stream keeps program order, and so does a transport",
        "        if stream.policy.sequential:\n",
        "        if False:\n",
        test_edges.test_transport_order,
        in_programs=True,
    ),
    Mutation(
        "ready instructions are launched in program order",
        "            stream.ready.push(instruction)\n",
        "            stream.ready.row.append(instruction)\n",
        test_transitions.test_instructions_that_become_ready_together_are_launched_in_the_order_of_issue,
        in_programs=False,
    ),
    Mutation(
        "a barrier runs only when it is the oldest lively instruction",
        "        if self.lively.first is barrier:\n",
        "        if True:\n",
        test_barriers.test_a_barrier_runs_when_everything_earlier_is_erased,
        in_programs=True,
    ),
    Mutation(
        "a barrier does not hold back later instructions",
        "            if policy.barrier:\n",
        "            if policy.barrier or self.barriers:\n",
        test_barriers.test_a_barrier_does_not_hold_back_later_instructions,
        in_programs=False,
    ),
    Mutation(
        "barriers run in order",
        "        barrier = self.barriers[0]\n",
        "        barrier = self.barriers[-1]\n",
        test_barriers.test_two_barriers_run_in_order_one_at_a_time,
        in_programs=True,
    ),
    Mutation(
        "a barrier that may run is work to do",
        " or self._barrier_due\n",
        "\n",
        test_barriers.test_a_barrier_with_nothing_before_it_runs_without_a_further_event,
        in_programs=True,
    ),
    Mutation(
        "an instruction reported finished is work to do",
        "        return bool(self._finished or self.pending)",
        "        return bool(self.pending)",
        test_transitions.test_has_work_after_each_event,
        in_programs=True,
    ),
    Mutation(
        "a failure unlocks its successors like any other end",
        "        self.completed(instruction)\n        self.remember_failure",
        "        self.remember_failure",
        test_transitions.test_a_failed_instruction_unlocks_its_successors_like_any_other,
        in_programs=True,
    ),
    Mutation(
        "a turn in the story does not change afterwards",
        "            self._failures = []\n",
        "",
        test_story.test_events_are_told_in_the_order_in_which_a_turn_happens,
        in_programs=False,
    ),
    Mutation(
        "a turn takes no more than its window",
        "range(min(self.window, len(pending)))",
        "range(len(pending))",
        test_transitions.test_a_turn_takes_no_more_than_its_window,
        in_programs=False,
    ),
    Mutation(
        "a dependence forgets its writer when that is erased",
        "                dependence.writer = None\n",
        "                pass\n",
        test_edges.test_finished_accesses_are_forgotten,
        in_programs=True,
    ),
    Mutation(
        "a dependence keeps a writer that has displaced the erased one",
        "            if dependence.writer is instruction:\n",
        "            if True:\n",
        test_edges.test_the_end_of_a_displaced_write_does_not_hide_the_one_that_displaced_it,
        in_programs=True,
    ),
    Mutation(
        "a dependence forgets its readers when they are erased",
        "                del readers[instruction]\n",
        "                pass\n",
        test_flatness.test_a_storage_that_is_only_read_remembers_no_reader,
        in_programs=True,
    ),
    Mutation(
        "an instruction drops its policy when it has run",
        "        instruction.state = DONE\n        instruction.policy = None\n",
        "        instruction.state = DONE\n",
        test_transitions.test_the_engine_keeps_no_policy_of_an_instruction_that_has_run,
        in_programs=False,
    ),
    Mutation(
        "a stream that follows another needs no more than a launch there",
        "        if preschedulable and (source.stream is target.stream or source.stream is follows):\n",
        "        if preschedulable and source.stream is target.stream:\n",
        test_ready.test_a_stream_that_follows_another_needs_a_launch_there,
        in_programs=False,
    ),
    Mutation(
        "the most urgent goes first",
        "        if _urgency(rank) > _urgency(chosen):\n",
        "        if _urgency(rank) < _urgency(chosen):\n",
        test_ready.test_the_most_urgent_goes_first,
        in_programs=False,
    ),
    Mutation(
        "an instruction that is passed over becomes more urgent",
        "        rank.passed_over += 1\n",
        "        pass\n",
        test_ready.test_nothing_waits_for_ever,
        in_programs=False,
    ),
    Mutation(
        "a turn taken makes up for having been passed over",
        "    chosen.passed_over = 0\n",
        "",
        test_ready.test_nothing_waits_for_ever,
        in_programs=False,
    ),
    Mutation(
        "a full stream gets no more",
        "                if stream.outstanding >= depth:\n",
        "                if False:\n",
        test_ready.test_a_full_stream_gets_no_more,
        in_programs=False,
    ),
    Mutation(
        "finished work lets the next be launched",
        "        if stream.full and stream.outstanding < stream.policy.depth:\n",
        "        if False:\n",
        test_ready.test_finished_work_lets_the_next_be_launched,
        in_programs=True,
    ),
    Mutation(
        "only running instructions can be reported finished",
        "        if instruction.state != LAUNCHED:\n",
        "        if False:\n",
        test_transitions.test_finishing_an_instruction_that_is_not_running_raises_with_the_story,
        in_programs=False,
    ),
    Mutation(
        "a probe is dropped once it returned True",
        "[probe for probe in self._probes if not probe()]",
        "[probe for probe in self._probes if not probe() or probe]",
        test_transitions.test_a_probe_is_called_after_each_turn_until_it_returns_true,
        in_programs=False,
    ),
    Mutation(
        "only neighbours on one stream are fused",
        "                or instruction.stream is not stream\n",
        "",
        test_fuse.test_another_stream_in_between_ends_it,
        in_programs=True,
    ),
    Mutation(
        "only instructions of one priority are fused",
        "                or (instruction.mode is not mode and priority_of(instruction) != priority_of(first))\n",
        "",
        test_fuse.test_priorities_are_not_mixed,
        in_programs=False,
    ),
    Mutation(
        "instructions that are not fusable are not fused",
        "                or not policy.fusable\n",
        "",
        test_fuse.test_one_alone_stays_alone,
        in_programs=False,
    ),
    Mutation(
        "no more work is fused than allowed",
        "                budget < 0\n                or ",
        "                ",
        test_fuse.test_no_more_work_is_fused_than_allowed,
        in_programs=False,
    ),
    Mutation(
        "an instruction that may wait for another stream is not fused with earlier ones",
        "                or _waits_elsewhere(instruction, stream)\n",
        "",
        test_fuse.test_reading_a_storage_written_elsewhere_does_not_delay_earlier_members,
        in_programs=False,
    ),
    Mutation(
        "a fused instruction reads the inputs of its members",
        "            reads += member.reads\n",
        "",
        test_fuse.test_others_wait_for_all_of_it,
        in_programs=True,
    ),
    Mutation(
        "a fused instruction writes the outputs of its members",
        "            writes += member.writes\n",
        "",
        test_fuse.test_neighbours_on_one_stream_are_fused,
        in_programs=True,
    ),
    Mutation(
        "members end with their fused instruction",
        "                member.state = ERASED\n",
        "                pass\n",
        test_fuse.test_neighbours_on_one_stream_are_fused,
        in_programs=True,
    ),
    Mutation(
        "each member counts",
        "            self.total_erased += len(instruction.members)\n",
        "            self.total_erased += 1\n",
        test_fuse.test_outstanding_counts_members,
        in_programs=True,
    ),
]


def _named(mutation: Mutation) -> str:
    return mutation.rule.replace(" ", "_")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=_named)
def test_a_script_notices(mutation: Mutation) -> None:
    bench = Bench(copied_engine(old=mutation.old, new=mutation.new))
    with pytest.raises(FAILS):
        _run(mutation.script, bench)


@pytest.mark.parametrize("mutation", [mutation for mutation in MUTATIONS if mutation.in_programs], ids=_named)
def test_random_programs_notice(mutation: Mutation) -> None:
    with pytest.raises(FAILS):
        _run_programs(SEEDS, mutation.old, mutation.new)


def test_an_unbroken_copy_passes() -> None:
    """Else the tests above would pass for the wrong reason."""
    for script in dict.fromkeys(mutation.script for mutation in MUTATIONS):
        _run(script, Bench(copied_engine()))
    _run_programs(SEEDS[:10])


def _run(script: Script, bench: Bench) -> None:
    script(bench)
    bench.drain()


def _run_programs(seeds: range, old: str = "", new: str = "") -> None:
    for seed in seeds:
        simulate(seed, copied_engine(old=old, new=new))
