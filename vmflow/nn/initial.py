"""How the parameters of layers come to be, and the initial values that several layers share."""

from __future__ import annotations

import math

from vmflow.autograd import no_grad
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops import creation
from vmflow.tensors import Tensor

from . import init
from .parameter import Parameter


def new_parameter(shape: tuple[int, ...], device: Device | str | None, dtype: DType | None) -> Parameter:
    """A parameter without values: `reset_parameters` draws them."""
    return Parameter(creation.empty(shape, device=device, dtype=dtype))


def draw_by_fan_in(weight: Tensor, bias: Tensor | None) -> None:
    """Both evenly distributed, within 1 / sqrt(fan_in): PyTorch's default for linear layers and convolutions."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None and bias.numel():
        fan_in, _ = init.fan_in_and_out(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(bias, -bound, bound)


def draw_table(table: Tensor, padding_idx: int | None) -> None:
    """Rows from the standard normal distribution, but zeros in row `padding_idx`."""
    init.normal_(table)
    if padding_idx is not None:
        with no_grad():
            table[padding_idx].zero_()
