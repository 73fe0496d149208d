"""Break one rule of the actors at a time, in a copy of the sources, and see that a test notices.

A rule that could be broken unnoticed would not be tested, even if a test's name claims it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from vmflow.errors import InternalError

from . import test_actor, test_system
from .bench import copied_system
from .simulation import simulate

Script = Callable[[Any], None]

# The errors that failing tests raise.  The lists that empty too early are the actors' own.
FAILS = (AssertionError, InternalError, IndexError, pytest.fail.Exception)

# Seeds that the random plans have to notice a broken rule.
SEEDS = range(400)


class Mutation(NamedTuple):
    """A rule, the change of a module's source that breaks it, and the test that must fail then."""

    rule: str
    module: str
    old: str
    new: str
    script: Script
    # Whether random plans notice as well.  They cannot where the broken rule makes things merely slower.
    in_plans: bool = True


MUTATIONS = [
    Mutation(
        "an act needs every input",
        "actor",
        "        if self.ready_inputs != len(self.inputs):\n            return False\n",
        "        if not self.ready_inputs and self.inputs:\n            return False\n",
        test_actor.test_an_act_needs_every_input,
    ),
    Mutation(
        "an act needs room in every output",
        "actor",
        "        if self.ready_outputs != len(self.outputs) and not self._has_claimed():\n            return False\n",
        "",
        test_actor.test_an_act_needs_a_free_slot_and_gets_it_by_the_ack,
    ),
    Mutation(
        "credits are all slots",
        "actor",
        "port.free.extend(range(len(port.slots)))",
        "port.free.append(0)",
        test_actor.test_credits_are_all_slots_in_order,
    ),
    Mutation(
        "a slot is free when all its readers have given it back",
        "actor",
        "        if left == 0:\n            self._make_free(port, slot)\n",
        "        if True:\n            self._make_free(port, slot)\n",
        test_actor._slots_2,
    ),
    Mutation(
        "a light actor waits for all its readers",
        "light",
        "        if self.here == self.all_here and self.away == 0 and not self.zombie:\n",
        "        if self.here == self.all_here and not self.zombie:\n",
        test_actor._slots_1,
    ),
    Mutation(
        "a light actor needs every input",
        "light",
        "        if self.here == self.all_here and self.away == 0 and not self.zombie:\n",
        "        if self.here and self.away == 0 and not self.zombie:\n",
        test_actor.test_an_act_needs_every_input,
    ),
    Mutation(
        "an input in whose memory an output lies is kept",
        "actor",
        "            if not source.kept:\n",
        "            if True:\n",
        test_actor._in_place_2,
    ),
    Mutation(
        "an input that was kept is given back",
        "actor",
        "                self.thread.send(keeps.acks[port.lent[slot]], port.ordered)\n",
        "                pass\n",
        test_actor._in_place_2,
    ),
    Mutation(
        "a light actor keeps the input in whose memory an output lies",
        "construction",
        "            if number != actor.in_place_input:\n",
        "            if True:\n",
        test_actor._in_place_1,
    ),
    Mutation(
        "a light actor gives it back",
        "light",
        "                    self.thread.send(self.acks[self.in_place_input], self.in_place_ordered)\n",
        "                    pass\n",
        test_actor._in_place_1,
    ),
    Mutation(
        "what was kept goes back behind its readers on the stream",
        "construction",
        "            port.ordered = any(",
        "            port.ordered = not all(",
        test_actor._behind_2,
    ),
    Mutation(
        "what a light actor kept goes back behind its readers on the stream",
        "construction",
        "                actor.in_place_ordered = any(",
        "                actor.in_place_ordered = not all(",
        test_actor._behind_1,
    ),
    Mutation(
        "what nobody reads is free behind the act",
        "construction",
        "            if in_place is not None and consumers:\n",
        "            if in_place is not None:\n",
        test_actor.test_a_slot_without_readers_is_free_after_the_act,
    ),
    Mutation(
        "an in-place slot is the one that it lies in",
        "actor",
        "        port.claimed = keeps.fifo[0]\n        port.free.remove(port.claimed)\n",
        "        port.claimed = port.free.pop()\n",
        test_actor._in_place_2,
    ),
    Mutation(
        "other threads hear of an act when it has completed",
        "actor",
        "        self.thread.launches.append(Action(self, self.run, inputs, outputs, index, item, far))\n",
        "        self.thread.launches.append(Action(self, self.run, inputs, outputs, index, item, ()))\n"
        "        for message in far:\n            self.thread._post(message.thread, message)\n",
        test_actor.test_other_threads_hear_of_an_act_when_it_has_completed,
    ),
    Mutation(
        "the same thread hears of it at once",
        "construction",
        "    return thread_of(one) == thread_of(other)\n",
        "    return False\n",
        test_actor.test_the_same_thread_hears_of_it_at_once,
        in_plans=False,
    ),
    Mutation(
        "what is sent in order waits for running actions",
        "bus",
        "        elif ordered and (self.launches or self.running):\n",
        "        elif ordered and self.launches:\n",
        test_actor.test_the_end_is_told_once_behind_everything_else,
    ),
    Mutation(
        "completions are in order",
        "bus",
        "            far = running.popleft().far\n",
        "            far = running.pop().far\n",
        test_actor.test_credits_are_all_slots_in_order,
    ),
    Mutation(
        "a zombie gives back what comes",
        "actor",
        "                self.thread.send(source.acks[message.slot], True)\n                return\n",
        "                return\n",
        test_actor.test_a_zombie_gives_slots_back_unread,
        in_plans=False,
    ),
    Mutation(
        "what is left of other inputs goes back",
        "actor",
        "                self.thread.send(source.acks[source.fifo.popleft()], True)\n",
        "                source.fifo.popleft()\n",
        test_actor._left_2,
        in_plans=False,
    ),
    Mutation(
        "a light actor gives back what is left of other inputs",
        "light",
        "                if self.here >> port & 1:\n                    self.thread.send(ack, True)\n",
        "                pass\n",
        test_actor._left_1,
        in_plans=False,
    ),
    Mutation(
        "what has come is read before the end",
        "actor",
        "any([port.ended and not port.fifo for port in self.inputs])",
        "any([port.ended for port in self.inputs])",
        test_system.test_all_launches_run_before_the_end,
    ),
    Mutation(
        "a light actor reads what has come before the end",
        "light",
        "        if self.ended & ~self.here and not self.zombie:\n",
        "        if self.ended and not self.zombie:\n",
        test_system.test_all_launches_run_before_the_end,
    ),
    Mutation(
        "the end of one input is the end",
        "actor",
        "any([port.ended and not port.fifo for port in self.inputs])",
        "all([port.ended and not port.fifo for port in self.inputs])",
        test_actor._left_2,
        in_plans=False,
    ),
    Mutation(
        "a zombie stays until everything is back",
        "actor",
        "        if self.zombie and self.reading == 0 and self.open_inputs == 0",
        "        if self.zombie and self.open_inputs == 0",
        test_actor._stays_2,
    ),
    Mutation(
        "a light zombie stays until everything is back",
        "light",
        "        if self.zombie and self.away == 0 and self.ended",
        "        if self.zombie and self.ended",
        test_actor._stays_1,
    ),
    Mutation(
        "a zombie stays until all inputs have ended",
        "actor",
        " and self.reading == 0 and self.open_inputs == 0 and",
        " and self.reading == 0 and",
        test_actor._left_2,
    ),
    Mutation(
        "a light zombie stays until all inputs have ended",
        "light",
        " and self.ended == self.all_here and",
        " and",
        test_actor._left_1,
    ),
    Mutation(
        "the end is told",
        "actor",
        "            for message in port.ends:\n                self.thread.send(message, True)\n",
        "            pass\n",
        test_actor.test_the_end_is_told_once_behind_everything_else,
    ),
    Mutation(
        "a group is handed out once",
        "actor",
        "        if last or not self.gathers:\n",
        "        if True:\n",
        test_actor._acc,
    ),
    Mutation(
        "a group has one slot",
        "actor",
        "        if not self._has_claimed():\n            self._claim()\n",
        "        self._claim()\n",
        test_actor._acc,
    ),
    Mutation(
        "what is unpacked is read until the last slice",
        "actor",
        "        if last or not self.spreads:\n",
        "        if True:\n",
        test_actor.test_unpacking_reads_one_slot_in_several_acts,
    ),
    Mutation(
        "what is repeated is handed out several times",
        "construction",
        "        times = task.count if KINDS[task.kind].repeats else 1\n",
        "        times = 1\n",
        test_actor._repeat,
    ),
    Mutation(
        "what is repeated goes back when all are back",
        "construction",
        "        if kind.repeats and not descriptor.control:\n",
        "        if False:\n",
        test_actor._repeat,
        in_plans=False,
    ),
    Mutation(
        "what is handed out several times is not for light actors",
        "construction",
        "            if descriptor.count != 1 or KINDS[self.tasks[descriptor.producer].kind].repeats:\n",
        "            if descriptor.count != 1:\n",
        test_actor.test_which_actors_are_light,
    ),
    Mutation(
        "buffers are filled from the sinks to the sources",
        "construction",
        "        for rule in (_is_wait_tick, _is_callback, _is_source):\n",
        "        for rule in (_is_source, _is_callback, _is_wait_tick):\n",
        test_system.test_a_launch_fills_the_buffers_in_order,
        in_plans=False,
    ),
    Mutation(
        "sources wait for the start",
        "bus",
        "            elif self.poked and self.started:\n",
        "            elif self.poked:\n",
        test_system.test_sources_wait_for_the_start,
        in_plans=False,
    ),
    Mutation(
        "a turn stops at its limit",
        "bus",
        "        while len(self.launches) < limit:\n",
        "        while True:\n",
        test_system.test_a_turn_stops_at_its_limit,
        in_plans=False,
    ),
]


def _named(mutation: Mutation) -> str:
    return mutation.rule.replace(" ", "_")


def _broken(mutation: Mutation) -> Any:
    return copied_system(module=mutation.module, old=mutation.old, new=mutation.new)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=_named)
def test_a_script_notices(mutation: Mutation) -> None:
    with pytest.raises(FAILS):
        mutation.script(_broken(mutation))


@pytest.mark.parametrize("mutation", [mutation for mutation in MUTATIONS if mutation.in_plans], ids=_named)
def test_random_plans_notice(mutation: Mutation) -> None:
    with pytest.raises(FAILS):
        _simulate_all(SEEDS, _broken(mutation))


def test_an_unbroken_copy_passes() -> None:
    """Else the tests above would pass for the wrong reason."""
    for script in dict.fromkeys(mutation.script for mutation in MUTATIONS):
        script(copied_system())
    _simulate_all(SEEDS[:10], copied_system())


def _simulate_all(seeds: range, system: Any) -> None:
    for seed in seeds:
        simulate(seed, system)
