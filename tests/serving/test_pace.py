"""Where batches are computed, by how long they take."""

from __future__ import annotations

import math

import pytest

from vmflow.serving.pace import GIVEN_UP_AFTER, HERE_BELOW, TRIED_AFTER, TRIED_AFTER_MOST, TRIED_BELOW, Pace

QUICK = HERE_BELOW / 2
SLOW = HERE_BELOW * 2


def elsewhere_before_the_next_trial(pace: Pace) -> int:
    count = 0
    while not pace.next_is_here():
        count += 1
        assert count <= TRIED_AFTER_MOST
    return count


@pytest.mark.parametrize(("seconds", "here"), [(QUICK, True), (HERE_BELOW, False), (SLOW, False), (math.inf, False)])
def test_the_rule_comes_from_warming_up(seconds: float, here: bool) -> None:
    pace = Pace(seconds)
    assert pace.here == here
    assert pace.next_is_here() == here


def test_a_slow_one_now_and_then_changes_nothing() -> None:
    pace = Pace(QUICK)
    for _ in range(100):
        pace.took(SLOW)
        pace.took(QUICK)
    for _ in range(GIVEN_UP_AFTER - 1):
        pace.took(SLOW)
    assert pace.here


def test_when_more_are_slow_than_quick_the_rest_is_computed_elsewhere() -> None:
    pace = Pace(QUICK)
    for _ in range(GIVEN_UP_AFTER - 2):
        pace.took(SLOW)
        pace.took(SLOW)
        pace.took(QUICK)
    pace.took(SLOW)
    assert pace.here
    pace.took(SLOW)
    assert not pace.here
    assert elsewhere_before_the_next_trial(pace) == TRIED_AFTER


def test_a_size_that_was_slow_while_the_machine_was_busy_comes_back() -> None:
    pace = Pace(SLOW)
    assert elsewhere_before_the_next_trial(pace) == TRIED_AFTER
    assert not pace.here  # for now
    pace.took(QUICK)
    assert pace.here
    for _ in range(GIVEN_UP_AFTER - 1):
        pace.took(SLOW)
    assert pace.here


def test_it_is_tried_less_and_less_often() -> None:
    pace = Pace(SLOW)
    between = []
    for _ in range(9):
        between.append(elsewhere_before_the_next_trial(pace))
        pace.took(SLOW)
    assert between == [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]
    assert elsewhere_before_the_next_trial(pace) == TRIED_AFTER_MOST
    pace.took(QUICK)
    for _ in range(GIVEN_UP_AFTER):
        pace.took(SLOW)
    assert elsewhere_before_the_next_trial(pace) == TRIED_AFTER  # it has been quick again in between


def test_after_a_trial_without_a_report_the_next_trial_waits() -> None:
    pace = Pace(SLOW)
    for _ in range(3):
        assert elsewhere_before_the_next_trial(pace) == TRIED_AFTER


@pytest.mark.parametrize("seconds", [TRIED_BELOW, math.inf])
def test_slow_batches_are_never_tried_on_the_loops_thread(seconds: float) -> None:
    pace = Pace(seconds)
    assert not any([pace.next_is_here() for _ in range(3 * TRIED_AFTER_MOST)])
