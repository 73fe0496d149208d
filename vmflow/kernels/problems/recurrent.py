"""The details of recurrent layers for their kernels: gates, parameters, and the time steps of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

# The number of gates of each kind of recurrent layer.
GATES: Final = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}


class Step(NamedTuple):
    """One time step: the slice of its rows among the rows of all time steps, and their number."""

    rows: slice
    size: int


class Weights(NamedTuple):
    """The parameters of a recurrent layer, or their metas; both biases and the projection may be None."""

    by_input: Any
    by_state: Any
    input_bias: Any
    state_bias: Any
    projection: Any


class Layer(NamedTuple):
    """One direction of a recurrent layer, without its operands.

    Attributes:
        kind: "rnn_tanh", "rnn_relu", "lstm" or "gru".
        reverse: whether the layer begins with the last time step.
        biased, projected: whether the layer has biases, and a projection of its output.
        sizes: the rows of each time step of a packed sequence; empty for an input (steps, batch, features).
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
        """The number of results for the backward pass: hidden states, an LSTM's or GRU's gates, an LSTM's cells."""
        return self.states + (self.kind in ("lstm", "gru"))

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], Weights]:
        """Split a layer's operands, without its input, into the tensors of the initial state and the parameters."""
        given = list(operands)
        state = [given.pop(0) for _ in range(self.states)]
        by_input, by_state = given.pop(0), given.pop(0)
        input_bias, state_bias = (given.pop(0), given.pop(0)) if self.biased else (None, None)
        return state, Weights(by_input, by_state, input_bias, state_bias, given.pop(0) if self.projected else None)

    def steps(self, shape: tuple[int, ...]) -> list[Step]:
        """Return the time steps of an input of this shape, in the order in which the layer runs them."""
        found: list[Step] = []
        start = 0
        for size in self.sizes or (shape[1],) * shape[0]:
            found.append(Step(slice(start, start + size), size))
            start += size
        return found[::-1] if self.reverse else found
