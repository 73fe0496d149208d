"""Recurrent networks: `RNN`, `LSTM` and `GRU` for whole sequences, and cells that compute one time step.

Parameters have PyTorch's names and shapes, so that PyTorch's state dicts can be loaded.
"""

from __future__ import annotations

from typing import Any

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.indexing.indexing import index_select
from vmflow.ops.nn.recurrent import GATES, Layer, recurrent_layer
from vmflow.ops.shape.joining import cat, stack
from vmflow.ops.shape.view import lengths
from vmflow.tensors import Tensor

from . import functional as F
from .layers import draw_evenly
from .module import Module, unusual_settings
from .parameter import Parameter, new_parameter
from .utils.rnn import PackedSequence, batch_sizes_of

State = Tensor | tuple[Tensor, Tensor]


class RNNBase(Module):
    """The base of `RNN`, `LSTM` and `GRU`; the arguments besides `mode` are as for `LSTM`.

    Shape: input (L, N, input_size), (N, L, input_size) with `batch_first`, or (L, input_size).

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".

    Attributes:
        mode: the argument `mode`.
        _kind: `mode` in lower case, a key of `vmflow.ops.nn.recurrent.GATES`.

    Raises:
        TypeError: for sizes that are no integers.
        ValueError: for another mode, or sizes or probabilities out of range.

    Example:
        >>> flow.nn.RNNBase("GRU", 2, 3).all_weights[0][0].shape
        vmflow.Size([9, 2])
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        input_size, hidden_size, num_layers, proj_size = lengths(name, (input_size, hidden_size, num_layers, proj_size))
        modes = [kind.upper() for kind in GATES]
        if mode not in modes:
            raise ValueError(f"{name}: the mode must be one of {', '.join(modes)}, not {mode!r}")
        if proj_size and mode != "LSTM":
            raise ValueError(f"{name}: only an LSTM has projections, got proj_size {proj_size} for {mode}")
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueError(f"{name}: hidden_size and num_layers must be positive, got {hidden_size} and {num_layers}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"{name}: the dropout probability must be within [0, 1], got {dropout}")
        if not 0 <= proj_size < hidden_size:
            raise ValueError(f"{name}: proj_size must be below hidden_size {hidden_size}, got {proj_size}")
        self.mode = mode
        self._kind = mode.lower()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._add_parameters(device, dtype)
        self.reset_parameters()

    def _add_parameters(self, device: Device | str | None, dtype: DType | None) -> None:
        gates, shown = GATES[self._kind] * self.hidden_size, self._shown()
        for number in range(self.num_layers):
            features = self.input_size if number == 0 else shown * len(self._directions())
            for direction in self._directions():
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, features), "weight_hh": (gates, shown)}
                if self.bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if self.proj_size:
                    shapes["weight_hr"] = (self.proj_size, self.hidden_size)
                for word, shape in shapes.items():
                    self.register_parameter(f"{word}_l{number}{direction}", new_parameter(shape, device, dtype))

    def _shown(self) -> int:
        return self.proj_size or self.hidden_size

    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """A list of parameters for each layer and direction: weights, biases if any, and the projection if any."""
        return [
            [getattr(self, name) for name in self._names(number, direction)]
            for number in range(self.num_layers)
            for direction in self._directions()
        ]

    def _names(self, number: int, direction: str) -> list[str]:
        words = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
        words += ["weight_hr"] if self.proj_size else []
        return [f"{word}_l{number}{direction}" for word in words]

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters, uniformly within +-1 / sqrt(hidden_size)."""
        draw_evenly(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Do nothing: the method exists for programs written for PyTorch, which call this method."""

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """Return the last layer's states after each time step, and the last state of every layer and direction.

        The first result of a packed batch is packed, too; the second result of an LSTM is the pair of state and cell.

        Args:
            input: (steps, batch, features), with batch_first (batch, steps, features), for one sequence (steps,
                features), or a packed batch.
            hx: the initial state, by default zeros, in the last state's shape: (layers * directions, batch, features),
                without the batch for one sequence; for an LSTM the pair of state and cell.

        Raises:
            ValueError: for shapes that do not fit, or a sequence of no steps.
            TypeError: for an input or a state of another type or dtype.
        """
        packed = input if isinstance(input, PackedSequence) else None
        sizes = () if packed is None else batch_sizes_of(packed)
        rows = self._in_order(input)
        single = packed is None and isinstance(input, Tensor) and input.ndim == 2
        batch = sizes[0] if sizes else rows.shape[1]
        state = self._initial(hx, batch, rows, single)
        if packed is not None and packed.sorted_indices is not None:
            state = [index_select(value, 1, packed.sorted_indices) for value in state]
        result, last = self._run(rows, state, sizes)
        if packed is not None and packed.unsorted_indices is not None:
            last = [index_select(value, 1, packed.unsorted_indices) for value in last]
        if single:
            result, last = result.squeeze(1), [value.squeeze(1) for value in last]
        elif packed is None and self.batch_first:
            result = result.transpose(0, 1)
        shown: Any = result if packed is None else packed._replace(data=result)
        return shown, tuple(last) if self._kind == "lstm" else last[0]

    def _in_order(self, input: Tensor | PackedSequence) -> Tensor:
        """Return `input` as (steps, batch, features), or a packed batch's rows; check its type, rank and features."""
        name = type(self).__name__
        if isinstance(input, PackedSequence):
            rows = input.data
        elif not isinstance(input, Tensor):
            raise TypeError(f"{name}: expected a tensor or a PackedSequence, got {type(input).__name__}")
        elif input.ndim == 2:
            rows = input.unsqueeze(1)
        elif input.ndim == 3:
            rows = input.transpose(0, 1) if self.batch_first else input
        else:
            raise ValueError(f"{name}: expected an input of 2 or 3 dimensions, got one of shape {list(input.shape)}")
        if rows.shape[-1] != self.input_size:
            raise ValueError(
                f"{name}: expected {self.input_size} features, the last dimension, got an input of shape "
                f"{list(rows.shape if isinstance(input, PackedSequence) else input.shape)}"
            )
        return rows

    def _initial(self, hx: Any, batch: int, rows: Tensor, single: bool) -> list[Tensor]:
        """Check the initial state `hx`, or make zeros, and return a list: the state and, for an LSTM, the cell.

        Each is (layers * directions, batch, features), also for a single sequence.
        """
        name = type(self).__name__
        both = self._kind == "lstm"
        count = self.num_layers * len(self._directions())
        widths = [self._shown(), self.hidden_size][: 1 + both]
        if hx is None:
            return [rows.new_zeros(count, batch, width) for width in widths]
        states = list(hx) if both and isinstance(hx, (tuple, list)) else [hx]
        if len(states) != len(widths) or not all(isinstance(value, Tensor) for value in states):
            expected = "a pair of state and cell" if both else "one tensor"
            raise TypeError(f"{name}: the initial state must be {expected}, got {type(hx).__name__}")
        for value, width in zip(states, widths, strict=True):
            shape = (count, width) if single else (count, batch, width)
            if tuple(value.shape) != shape:
                raise ValueError(f"{name}: expected an initial state of shape {list(shape)}, got {list(value.shape)}")
        return [value.unsqueeze(1) for value in states] if single else states

    def _run(self, rows: Tensor, state: list[Tensor], sizes: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
        ended: list[tuple[Tensor, ...]] = []
        for number in range(self.num_layers):
            if number and self.dropout:
                rows = F.dropout(rows, self.dropout, self.training)
            results: list[Tensor] = []
            for direction in self._directions():
                parameters = [getattr(self, name) for name in self._names(number, direction)]
                layer = Layer(self._kind, bool(direction), self.bias, bool(self.proj_size), sizes)
                initial = [value[len(ended)] for value in state]
                result, *last = recurrent_layer(layer, rows, *initial, *parameters)
                results.append(result)
                ended.append(tuple(last))
            rows = results[0] if len(results) == 1 else cat(results, -1)
        if len(ended) == 1:
            return rows, [value.unsqueeze(0) for value in ended[0]]
        return rows, [stack([last[place] for last in ended]) for place in range(len(state))]

    def extra_repr(self) -> str:
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        shown = unusual_settings(self, {**usual, "bidirectional": False})
        return f"{self.input_size}, {self.hidden_size}{shown}"


class RNN(RNNBase):
    """Elman's recurrent network: ``state = tanh(weight_ih @ x + bias_ih + weight_hh @ state + bias_hh)``.

    Shape: input, state and outputs as for `GRU`.

    Args:
        nonlinearity: "tanh" or "relu".
        The other arguments are as for `LSTM`, without `proj_size`.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weights'.
        ValueError: for sizes or probabilities out of range, or another nonlinearity; when called with shapes that do
            not fit.

    Example:
        >>> states, last = flow.nn.RNN(2, 3)(flow.ones(5, 1, 2))
        >>> states.shape, last.shape
        (vmflow.Size([5, 1, 3]), vmflow.Size([1, 1, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        _check_nonlinearity("RNN", nonlinearity)
        args = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, 0, device, dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (S. Hochreiter and J. Schmidhuber, 1997), with PyTorch's parameters.

    One op computes the whole sequence for a layer and direction, and one its backward pass.  Gradients of gradients
    (``create_graph=True``) compute each time step again by separate ops.

    Shape: input (L, N, input_size), state and cell (D * num_layers, N, hidden_size), where D is 2 if bidirectional,
    else 1; outputs (L, N, D * hidden_size), and the pair of last state and cell, in the initial ones' shapes.  With
    `batch_first` input and output are (N, L, ...); all may be without N; with projections states and output
    have `proj_size` features instead of `hidden_size`, but not the cell.

    Args:
        input_size: the number of features of the input.
        hidden_size: the number of features of the state.
        num_layers: the number of layers; from the second on, a layer's input is the states of the layer before.
        bias: whether there are `bias_ih` and `bias_hh`.
        batch_first: whether input and result are (N, L, features) and not (L, N, features).
        dropout: the probability with which an element between two layers is dropped in training.
        bidirectional: whether each layer also runs from the end to the beginning; the features of the reverse results
            follow those of the forward results.
        proj_size: if not 0, the number of features to which the state is projected after each step.
        device, dtype: the device and dtype of the parameters.

    Attributes:
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0: the parameters of layer 0, the biases if
            `bias`, the last if `proj_size`; the names of those of the reverse direction end in ``_reverse``.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weights', or a state that is
            no pair.
        ValueError: for sizes or probabilities out of range; when called with shapes that do not fit.

    Example:
        >>> states, (last, cell) = flow.nn.LSTM(2, 3, num_layers=2)(flow.ones(5, 1, 2))
        >>> states.shape, last.shape
        (vmflow.Size([5, 1, 3]), vmflow.Size([2, 1, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        args = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__("LSTM", *args, proj_size, device, dtype)


class GRU(RNNBase):
    """Gated recurrent units (K. Cho et al., 2014), with PyTorch's parameters; arguments as for `LSTM`, no `proj_size`.

    Shape: input (L, N, input_size), state (D * num_layers, N, hidden_size), where D is 2 if bidirectional, else 1;
    outputs (L, N, D * hidden_size), and the last state, in the initial one's shape.  With `batch_first` input and
    output are (N, L, ...); all may be without N.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weights'.
        ValueError: for sizes or probabilities out of range; when called with shapes that do not fit.

    Example:
        >>> states, last = flow.nn.GRU(2, 3, bidirectional=True)(flow.ones(5, 1, 2))
        >>> states.shape, last.shape
        (vmflow.Size([5, 1, 6]), vmflow.Size([2, 1, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        args = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__("GRU", *args, 0, device, dtype)


def _check_nonlinearity(name: str, nonlinearity: str) -> None:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"{name}: nonlinearity must be 'tanh' or 'relu', not {nonlinearity!r}")


class RNNCellBase(Module):
    """The base of cells, which compute one time step of a recurrent network; a derived class defines `forward`.

    Shape: input (N, input_size) or (input_size,), state (N, hidden_size) or (hidden_size,).

    Args:
        input_size: the number of features of the input.
        hidden_size: the number of features of the state.
        bias: whether there are `bias_ih` and `bias_hh`.
        num_chunks: the number of gates; the weights have `hidden_size` rows for each gate.
        device, dtype: the device and dtype of the parameters.

    Attributes:
        _kind: the kind of cell, a key of `vmflow.ops.nn.recurrent.GATES`; a derived class sets it.

    Raises:
        TypeError: for sizes that are no integers.
        ValueError: for negative sizes.

    Example:
        >>> flow.nn.RNNCellBase(2, 3, bias=True, num_chunks=4).weight_ih.shape
        vmflow.Size([12, 2])
    """

    _kind: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = new_parameter((gates, input_size), device, dtype)
        self.weight_hh = new_parameter((gates, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, new_parameter((gates,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters, uniformly within +-1 / sqrt(hidden_size)."""
        draw_evenly(self, self.hidden_size)

    def _step(self, input: Tensor, states: tuple[Tensor, ...] | None) -> list[Tensor]:
        """Return the next state (and cell) for an input (batch, features) or (features,); `states` None is zeros."""
        name = type(self).__name__
        check_tensors(name, input)
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ValueError(
                f"{name}: expected an input (batch, {self.input_size}) or ({self.input_size}), got {list(input.shape)}"
            )
        count = 2 if self._kind == "lstm" else 1
        shape = (*input.shape[:-1], self.hidden_size)
        if states is None:
            states = tuple([input.new_zeros(shape) for _ in range(count)])
        check_tensors(name, *states)
        if len(states) != count or any([tuple(value.shape) != shape for value in states]):
            shapes = " and ".join([str(list(value.shape)) for value in states])
            raise ValueError(f"{name}: expected a state of {count} of shape {list(shape)}, got {shapes}")
        rows, initial = input, list(states)
        if input.ndim == 1:
            rows, initial = input.unsqueeze(0), [value.unsqueeze(0) for value in initial]
        weights = [self.weight_ih, self.weight_hh]
        weights += [self.bias_ih, self.bias_hh] if self.bias else []
        layer = Layer(self._kind, False, self.bias, False)
        _, *after = recurrent_layer(layer, rows.unsqueeze(0), *initial, *weights)
        return [value.squeeze(0) for value in after] if input.ndim == 1 else after

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}{unusual_settings(self, {'bias': True})}"


class RNNCell(RNNCellBase):
    """One time step of `RNN`.

    Shape: input (N, input_size), state (N, hidden_size), by default zeros; output (N, hidden_size).  All may be without
    N.

    Args:
        input_size: the number of features of the input.
        hidden_size: the number of features of the state.
        bias: whether there are `bias_ih` and `bias_hh`.
        nonlinearity: "tanh" or "relu".
        device, dtype: the device and dtype of the parameters.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weights'.
        ValueError: for negative sizes, or another nonlinearity; when called with shapes that do not fit.

    Example:
        >>> flow.nn.RNNCell(2, 3)(flow.ones(5, 2)).shape
        vmflow.Size([5, 3])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        _check_nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, GATES[f"rnn_{nonlinearity}"], device, dtype)
        self._kind = f"rnn_{nonlinearity}"
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Map (batch, input_size) and the state (batch, hidden_size), by default zeros, to the next state."""
        return self._step(input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One time step of `LSTM`.

    Shape: input (N, input_size), the pair of state and cell (N, hidden_size), by default zeros; output the next pair.
    All may be without N.

    Args:
        input_size, hidden_size, bias, device, dtype: as for `RNNCell`.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weights'.
        ValueError: for negative sizes; when called with shapes that do not fit, or more or fewer states than two.

    Example:
        >>> state, cell = flow.nn.LSTMCell(2, 3)(flow.ones(5, 2))
        >>> state.shape, cell.shape
        (vmflow.Size([5, 3]), vmflow.Size([5, 3]))
    """

    _kind = "lstm"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, GATES["lstm"], device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Map (batch, input_size) and the pair of state and cell (batch, hidden_size), or zeros, to the next pair."""
        state, cell = self._step(input, None if hx is None else tuple(hx))
        return state, cell


class GRUCell(RNNCellBase):
    """One time step of `GRU`.

    Shape: input (N, input_size), state (N, hidden_size), by default zeros; output (N, hidden_size).  All may be without
    N.

    Args:
        input_size, hidden_size, bias, device, dtype: as for `RNNCell`.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weights'.
        ValueError: for negative sizes; when called with shapes that do not fit.

    Example:
        >>> flow.nn.GRUCell(2, 3)(flow.ones(5, 2)).shape
        vmflow.Size([5, 3])
    """

    _kind = "gru"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, GATES["gru"], device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Map (batch, input_size) and the state (batch, hidden_size), by default zeros, to the next state."""
        return self._step(input, None if hx is None else (hx,))[0]
