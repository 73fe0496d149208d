"""The order of a job's ops that a plan keeps."""

from __future__ import annotations

from vmflow.graph_mode import Job, Plan
from vmflow.graph_mode.job import BOUNDARY
from vmflow.graph_mode.passes.flow import dependences


def unordered(job: Job, plan: Plan) -> list[tuple[str, str]]:
    """The pairs of ops of which the one has to run before the other, and the plan does not say so."""
    places: dict[int, tuple[int, int]] = {position: (task, 0) for task, position in plan.gathers.items()}
    for task, chain in plan.chains.items():
        places.update({position: (task, place) for place, position in enumerate(chain.ops)})
    after = _reached(plan)
    found = []
    within = [pair for pair in dependences(job.ops) if not any([job.ops[value].kind in BOUNDARY for value in pair])]
    for one, other in within:
        (task, place), (later_task, later_place) = places[one], places[other]
        if later_task not in after[task] and not (task == later_task and place < later_place):
            found.append((job.ops[one].name, job.ops[other].name))
    return found


def _reached(plan: Plan) -> dict[int, set[int]]:
    """By task, those that act only after it has, in the same launch."""
    followers = {task.id: set[int]() for task in plan.tasks}
    for register in plan.registers:
        followers[register.producer].update(register.consumers)
    reached: dict[int, set[int]] = {}
    for task in followers:
        todo, seen = [task], set[int]()
        while todo:
            new = followers[todo.pop()] - seen
            seen |= new
            todo += new
        reached[task] = seen
    return reached
