"""Running programs for autograd in two libraries and comparing all that can be seen of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import attrs
import numpy as np

from .program_steps import Library, Program, Run, Step, as_array

# Errors of vmflow where PyTorch computes something, all documented.
DOCUMENTED = (
    "marked @once_differentiable",  # in PyTorch as well
    "without copying; use reshape()",  # results of ops have other strides
    "must be adjacent in memory",  # the same
    "record a change in place of a view that was made under no_grad",  # or detached: it is not known of what
    "saved tensors were freed the first time",  # also where PyTorch has saved nothing
    "gradient of CheckpointBackward needs",  # an argument that was changed in place
    "functions with out=... do not support",  # in PyTorch neither
)

# Differences that DEVIATIONS.md describes, or that are PyTorch's own: a description, the end of the name at which the
# problem shows, and parts of the program's text.
DOCUMENTED_DIFFERENCES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("gradients that mark_dirty leaves with a tensor", ".grad", ("'doubled_in_place'", "op='retain'")),
    ("gradients that mark_dirty leaves with a tensor", ".grad", ("'changed_and_other'", "op='retain'")),
    ("gradients by a tensor that was transposed in place", "", ("'transpose_'", "op='grad'")),
    ("gradients of a leaf that was detached in place while in use", ".grad", ("'detach_'",)),
    # PyTorch's linear of a vector is a view of a row, of whose changes its hooks hear nothing.
    ("hooks of a module's result that is a vector", "]", ("op='module'", "op='hook'")),
    # A result that is the function's argument, or that needs a gradient and has none, is none of plain ops.
    ("results of functions, compared with plain ops", ".grad", ("op='function'", "'lazy'")),
)

# By the dtype of least precision in a program.
TOLERANCES = {"float64": 1e-8, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


@attrs.frozen
class Fault:
    """A step that was refused."""

    at: int
    error: Exception


Seen: TypeAlias = "dict[str, Any]"


def run(library: Library, program: Program) -> tuple[Seen, Fault | None]:
    """The visible values after a program, and the step that ended it early."""
    state = Run(library)
    with library.around():
        for at, step in enumerate(program):
            try:
                state.step(step)
            except REFUSALS as error:
                return {}, Fault(at, error)
        return _seen(state), None


def _seen(state: Run) -> Seen:
    found: Seen = {}
    for name, value in state.tensors.items():
        if hasattr(value, "parameters"):
            for which, parameter in value.named_parameters():
                found[f"{name}.{which}.grad"] = _gradient(parameter)
        else:
            found[name] = as_array(value)
            # PyTorch refuses to tell for some views of tensors that were changed in place.
            with contextlib.suppress(RuntimeError):
                found[f"{name}.is_leaf"] = value.grad_fn is None
            found[f"{name}.requires_grad"] = bool(value.requires_grad)
            found[f"{name}.grad"] = _gradient(value)
    for name, heard in state.heard.items():
        for at, gradient in enumerate([entry for entry in heard if entry.any()]):
            found[f"{name}[{at}]"] = gradient
    return found


def _gradient(tensor: Any) -> Any:
    """The gradient, None if it is zero: where a tensor was overwritten, one library has zeros and the other none."""
    found = None if tensor.grad is None else as_array(tensor.grad)
    return found if found is not None and found.any() else None


def _coarse(program: Program) -> Callable[[str, Seen], bool]:
    """Selects values that are not compared: gradients between leaves, if gradients by name lead through a checkpoint.

    A checkpoint is one node, through which other gradients than the requested ones may pass, and computes all within
    anew.  In PyTorch, parts of a tensor are one node as well; here they are several.
    """
    text = repr(program)
    several = any([value in text for value in ("op='checkpoint'", "'unbind'", "'split'")])
    coarse = several and "op='grad'" in text

    def skipped(name: str, seen: Seen) -> bool:
        hook = name.endswith("]")
        kept = name.endswith(".grad") and not seen.get(f"{name.removesuffix('.grad')}.is_leaf", True)
        return coarse and (hook or kept)

    return skipped


def difference(one: Seen, other: Seen, program: Program) -> str | None:
    """The difference in words; None if there is none."""
    skipped, tolerance = _coarse(program), tolerance_of(program) * _scale(other)
    unlike = [name for name in one.keys() ^ other.keys() if not (name.endswith("is_leaf") or skipped(name, other))]
    if unlike:
        return f"only one has {sorted(unlike)}"
    for name in sorted(one.keys() & other.keys()):
        ours, theirs = one[name], other[name]
        if skipped(name, other):
            continue
        if (ours is None) != (theirs is None) or isinstance(ours, bool):
            if ours is not theirs:
                return f"{name}: {_short(ours)} instead of {_short(theirs)}"
        elif ours is not None and (problem := _apart(ours, theirs, tolerance)):
            return f"{name}: {problem}: {_short(ours)} instead of {_short(theirs)}"
    return None


def _apart(ours: Any, theirs: Any, tolerance: float) -> str | None:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {ours.shape} and {theirs.dtype} {theirs.shape}"
    return None if np.allclose(ours, theirs, rtol=tolerance, atol=tolerance) else "other values"


def _short(value: Any) -> str:
    return " ".join(str(value).split())[:200]


def _scale(seen: Seen) -> float:
    """The largest number in sight: rounding is relative to that, since sums cancel."""
    sizes = [float(np.abs(value).max()) for value in seen.values() if isinstance(value, np.ndarray) and value.size]
    return max([1.0, *sizes]) if np.isfinite(sizes).all() else np.inf


def tolerance_of(program: Program) -> float:
    """How far results may be apart."""
    text = repr(program)
    return max([value for name, value in TOLERANCES.items() if name in text], default=1e-8)


@attrs.define
class Check:
    """Programs compared with another library.

    Attributes:
        ours: vmflow.
        theirs: the library to compare with.
        fallback: computes programs that `theirs` refuses.
        counts: of outcomes.
        differing: steps that lead to a difference, with its description.
    """

    ours: Library
    theirs: Library
    fallback: Library
    counts: Counter[str] = attrs.field(factory=Counter)

    def difference(self, one: Seen, other: Seen, program: Program) -> str | None:
        """See `difference`; a function requires a gradient of all its results, and plain ops do not."""
        if self.theirs.plain:
            one, other = [
                {name: value for name, value in seen.items() if not isinstance(value, bool)} for seen in (one, other)
            ]
        return difference(one, other, program)

    def problem(self, program: Program) -> str | None:
        """Where vmflow differs, in words; None if it does not.

        A step that is refused is compared, and then left out.
        """
        while True:
            theirs, fault = run(self.theirs, program)
            if fault is None:
                break
            found = self._refused(program[: fault.at + 1], fault)
            if found is not None:
                return found
            program = (*program[: fault.at], *program[fault.at + 1 :])
        return self._computed(program, theirs)

    def _refused(self, program: Program, fault: Fault) -> str | None:
        """The other library refuses the last step: vmflow refuses as well, or its result is right."""
        ours, own = run(self.ours, program)
        if own is not None:
            self.counts["steps refused by both"] += 1
            if own.at == fault.at or _documented(own.error) or _lost(own.error, program):
                return None
            return self._unless_unsound(program[: own.at + 1], f"step {own.at} is refused: {own.error!r}")
        expected, other = run(self.fallback, program)
        if other is not None or not _is_finite(expected):
            self.counts["steps refused by the other, with nothing to compare"] += 1
            return None
        self.counts["steps refused by the other, and compared with plain ops"] += 1
        numbers = {name: our for name, our in ours.items() if name.endswith(".grad") and name in expected}
        wanted = {name: expected[name] for name in numbers}
        found = difference(numbers, wanted, program)
        found = found and self._unless_told(program, found)
        return found and f"{found} (of a step that the other refuses: {fault.error!r})"

    def _computed(self, program: Program, theirs: Seen) -> str | None:
        ours, own = run(self.ours, program)
        if own is not None and (_documented(own.error) or _lost(own.error, program)):
            self.counts["programs refused as documented"] += 1
            return None
        if not _is_finite(theirs):
            self.counts["programs with infinite or very large numbers"] += 1
            return None
        if own is not None:
            return self._unless_unsound(program, f"step {own.at} is refused: {own.error!r}")
        found = self.difference(ours, theirs, program)
        return found and self._unless_told(program, found) and self._unless_checkpoint(program, ours, found)

    def _unless_told(self, program: Program, problem: str) -> str | None:
        """The problem, if it is not in `DOCUMENTED_DIFFERENCES`."""
        text, name = repr(program), problem.split(":")[0]
        for description, end, parts in DOCUMENTED_DIFFERENCES:
            if name.endswith(end) and all([part in text for part in parts]):
                self.counts[f"programs that differ as documented: {description}"] += 1
                return None
        return problem

    def _unless_unsound(self, program: Program, problem: str) -> str | None:
        """PyTorch does not notice a change in place of tensors that a checkpoint saves at its second call.

        On the other hand a gradient by name does not go through all of a checkpoint there.
        """
        text = repr(program)
        plainly = attrs.evolve(self.theirs, checkpoint=lambda function, *given: function(*given))
        if "checkpoint" in text and run(plainly, program)[1] is not None:
            self.counts["programs that the other refuses without checkpoints"] += 1
            return None
        if "op='checkpoint'" in text and "op='grad'" in text and "was changed in place after it was used" in problem:
            self.counts["programs with a checkpoint refused as a whole"] += 1
            return None
        if "of linear needs" in problem and "'expand'" in text:
            self.counts["programs where the other has saved a copy"] += 1
            return None
        return problem

    def _unless_checkpoint(self, program: Program, ours: Seen, problem: str) -> str | None:
        """Gradients that are equal to those without checkpoints are right, even if the other's checkpoints differ."""
        if "checkpoint" not in repr(program):
            return problem
        expected, refused = run(self.fallback, program)
        if refused is not None or difference(ours, expected, program) is not None:
            return problem
        self.counts["programs as without checkpoints, which the other computes otherwise with them"] += 1
        return None


def _is_finite(seen: Seen) -> bool:
    return bool(_scale(seen) < 1e6)


def _documented(error: Exception) -> bool:
    return any([part in str(error) for part in DOCUMENTED])


def _lost(error: Exception, program: Program) -> bool:
    """Whether memory was changed through another tensor, of which nothing is known: one detached, or a function's."""
    return "shares its memory with a tensor that was changed" in str(error) and any(
        [name in repr(program) for name in ("detach", "as_is")]
    )


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The program with as few steps as still fail."""
    again = True
    while again:
        again = False
        for candidate in _smaller(program):
            if fails(candidate):
                program, again = candidate, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for at in reversed(range(len(program))):
        yield (*program[:at], *program[at + 1 :])
    for at, step in enumerate(program):
        for place, part in enumerate(step.params):
            if isinstance(part, tuple) and part and isinstance(part[0], Step):
                for body in _smaller(part):
                    params = (*step.params[:place], body, *step.params[place + 1 :])
                    yield (*program[:at], attrs.evolve(step, params=params), *program[at + 1 :])
