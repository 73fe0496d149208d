"""Recurrent layers: their gates and parameters, and the steps of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

# The number of gates of each kind of recurrent layer.
GATES: Final = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}


class Step(NamedTuple):
    """One time step of a sequence: the number of its rows, and their position among the rows of all steps."""

    rows: slice
    size: int


class Weights(NamedTuple):
    """The parameters of a recurrent layer, or their metas; `input_bias`, `state_bias`, `projection` may be None."""

    by_input: Any
    by_state: Any
    input_bias: Any
    state_bias: Any
    projection: Any


class Layer(NamedTuple):
    """A call of a recurrent layer without its operands.

    Attributes:
        kind: a key of `GATES`.
        reverse: whether it begins with the last step.
        biased, projected: whether the layer has these optional parameters.
        sizes: the rows of each step of a packed sequence; empty for (steps, batch, features).
    """

    kind: str
    reverse: bool
    biased: bool
    projected: bool
    sizes: tuple[int, ...] = ()

    @property
    def states(self) -> int:
        """The number of tensors in the layer's state: 2 for an LSTM, else 1."""
        return 2 if self.kind == "lstm" else 1

    @property
    def saved(self) -> int:
        """The number of results that are kept for the backward pass."""
        return self.states + (self.kind in ("lstm", "gru"))

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], Weights]:
        """Split all operands behind the input into the initial state and the parameters."""
        given = list(operands)
        state = [given.pop(0) for _ in range(self.states)]
        by_input, by_state = given.pop(0), given.pop(0)
        input_bias, state_bias = (given.pop(0), given.pop(0)) if self.biased else (None, None)
        return state, Weights(by_input, by_state, input_bias, state_bias, given.pop(0) if self.projected else None)

    def steps(self, shape: tuple[int, ...]) -> list[Step]:
        """The time steps of an input of this shape, in the order in which they run."""
        found: list[Step] = []
        start = 0
        for size in self.sizes or (shape[1],) * shape[0]:
            found.append(Step(slice(start, start + size), size))
            start += size
        return found[::-1] if self.reverse else found
