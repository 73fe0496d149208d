"""The in-place forms of ops, as methods of `Tensor`: ``x.exp_()`` puts what ``exp(x)`` would return into x's memory.

Each is made from its op by one of five functions: `_of` writes the op's result straight into the memory, `_of_two` does
so for two operands and `_of_tensors` for two that are tensors, `_copied` computes a result of its own and copies it,
`_reseen` makes the tensor see its memory differently, which changes no memory and no other tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmflow.autograd.grad_mode import set_grad_enabled
from vmflow.context import MODE
from vmflow.operands import changed_leaf, check_fits
from vmflow.tensor_fields import new_alias

from . import (
    activation,
    arithmetic,
    comparison,
    error_function,
    flat_elements,
    floating_point,
    gamma_function,
    gathering,
    indexing,
    joining,
    linear_algebra,
    rounding,
    running_sums,
    scatter_reduction,
    selection,
    strided,
    transcendental,
    view,
)
from .copying import clone, copy_
from .declaration import METHODS
from .pointwise import BINARIES, into
from .table import OPS

if TYPE_CHECKING:
    from typing import TypeAlias

    from vmflow.tensors import Tensor

    from .elementwise import Scalar

    # Spelt out, because tensor.py and this module import each other and mypy does not infer across that.
    OfOne: TypeAlias = Callable[[Tensor], Tensor]
    OfTwo: TypeAlias = Callable[[Tensor, Tensor | Scalar], Tensor]
    Form: TypeAlias = Callable[..., Tensor]


def _named(form: Form, name: str) -> None:
    form.__name__ = form.__qualname__ = f"{name}_"
    form.__doc__ = f"In-place `{name}`."
    METHODS[f"{name}_"] = form


def _of(function: Form) -> OfOne:
    op = OPS[function.__name__]

    def form(input: Tensor) -> Tensor:
        return into(op, input, (input,))

    _named(form, op.name)
    return form


def _of_tensors(function: Form, check: Callable[[str, Any, Any], None] | None = None) -> Form:
    op = OPS[function.__name__]

    def form(input: Tensor, other: Tensor) -> Tensor:
        if check is not None:
            check(f"{op.name}_", input, other)
        return into(op, input, (input, other))

    _named(form, op.name)
    return form


def _of_two(function: Form, check: Callable[[str, Any, Any], None] | None = None) -> OfTwo:
    op = BINARIES[function.__name__]

    def form(input: Tensor, other: Tensor | Scalar) -> Tensor:
        if check is not None:
            check(f"{op.name}_", input, other)
        return op.into(input, other)

    _named(form, op.name)
    return form


def _copied(function: Form) -> Form:
    name = function.__name__

    def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # What the gradient needs of the tensor must stay as it was.
        before = clone(input) if MODE.get().grad and input.requires_grad else input
        result = function(before, *args, **kwargs)
        check_fits(f"{name}_", result._blob.meta, input)
        return copy_(input, result)

    _named(form, name)
    return form


def _reseen(function: Form) -> Form:
    name = function.__name__

    def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if MODE.get().grad and input.requires_grad and input.is_leaf:
            raise changed_leaf(f"{name}_", input.shape)
        whole = new_alias(input)
        # The history of what is no leaf has to say how it is seen, also where nothing is recorded.
        with set_grad_enabled(MODE.get().grad or not input.is_leaf):
            seen = function(input, *args, **kwargs)
        input._blob, input._lease = seen._blob, seen._lease
        if input._base is None and seen._base is not None:
            input._base = whole  # which the input itself is no longer
        if seen._autograd is not None and seen.requires_grad:
            input._autograd = seen._autograd.follow(input._autograd)
        return input

    _named(form, name)
    return form


abs_: OfOne = _of(arithmetic.abs)
acos_: OfOne = _of(transcendental.acos)
acosh_: OfOne = _of(transcendental.acosh)
asin_: OfOne = _of(transcendental.asin)
asinh_: OfOne = _of(transcendental.asinh)
atan_: OfOne = _of(transcendental.atan)
atanh_: OfOne = _of(transcendental.atanh)
bitwise_not_: OfOne = _of(comparison.bitwise_not)
ceil_: OfOne = _of(rounding.ceil)
cos_: OfOne = _of(transcendental.cos)
cosh_: OfOne = _of(transcendental.cosh)
digamma_: OfOne = _of(gamma_function.digamma)
erf_: OfOne = _of(activation.erf)
erfc_: OfOne = _of(error_function.erfc)
erfinv_: OfOne = _of(error_function.erfinv)
exp_: OfOne = _of(transcendental.exp)
exp2_: OfOne = _of(transcendental.exp2)
expm1_: OfOne = _of(transcendental.expm1)
floor_: OfOne = _of(rounding.floor)
lgamma_: OfOne = _of(gamma_function.lgamma)
log_: OfOne = _of(transcendental.log)
log10_: OfOne = _of(transcendental.log10)
log1p_: OfOne = _of(transcendental.log1p)
log2_: OfOne = _of(transcendental.log2)
logical_not_: OfOne = _of(comparison.logical_not)
neg_: OfOne = _of(arithmetic.neg)
reciprocal_: OfOne = _of(arithmetic.reciprocal)
rsqrt_: OfOne = _of(transcendental.rsqrt)
sigmoid_: OfOne = _of(activation.sigmoid)
sign_: OfOne = _of(arithmetic.sign)
sin_: OfOne = _of(transcendental.sin)
sinc_: OfOne = _of(transcendental.sinc)
sinh_: OfOne = _of(transcendental.sinh)
sqrt_: OfOne = _of(transcendental.sqrt)
square_: OfOne = _of(arithmetic.square)
tan_: OfOne = _of(transcendental.tan)
tanh_: OfOne = _of(activation.tanh)
trunc_: OfOne = _of(rounding.trunc)

atan2_: OfTwo = _of_two(arithmetic.atan2)
bitwise_and_: OfTwo = _of_two(comparison.bitwise_and)
bitwise_left_shift_: OfTwo = _of_two(comparison.bitwise_left_shift)
bitwise_or_: OfTwo = _of_two(comparison.bitwise_or)
bitwise_right_shift_: OfTwo = _of_two(comparison.bitwise_right_shift)
bitwise_xor_: OfTwo = _of_two(comparison.bitwise_xor)
clamp_max_: OfTwo = _of_two(selection.clamp_max)
clamp_min_: OfTwo = _of_two(selection.clamp_min)
copysign_: OfTwo = _of_two(floating_point.copysign)
eq_: OfTwo = _of_two(comparison.eq)
floor_divide_: OfTwo = _of_two(arithmetic.floor_divide, arithmetic.check_divisor)
fmod_: OfTwo = _of_two(arithmetic.fmod, arithmetic.check_divisor)
ge_: OfTwo = _of_two(comparison.ge)
gt_: OfTwo = _of_two(comparison.gt)
le_: OfTwo = _of_two(comparison.le)
logical_and_: OfTwo = _of_two(comparison.logical_and)
logical_or_: OfTwo = _of_two(comparison.logical_or)
logical_xor_: OfTwo = _of_two(comparison.logical_xor)
lt_: OfTwo = _of_two(comparison.lt)
ne_: OfTwo = _of_two(comparison.ne)
remainder_: OfTwo = _of_two(arithmetic.remainder, arithmetic.check_divisor)
xlogy_: OfTwo = _of_two(transcendental.xlogy)

heaviside_: Form = _of_tensors(floating_point.heaviside, floating_point.check_one_dtype)
hypot_: Form = _of_tensors(transcendental.hypot)
nextafter_: Form = _of_tensors(floating_point.nextafter)

addcdiv_: Form = _copied(arithmetic.addcdiv)
addcmul_: Form = _copied(arithmetic.addcmul)
addmm_: Form = _copied(linear_algebra.addmm)
baddbmm_: Form = _copied(linear_algebra.baddbmm)
cumprod_: Form = _copied(running_sums.cumprod)
cumsum_: Form = _copied(running_sums.cumsum)
deg2rad_: Form = _copied(transcendental.deg2rad)
frac_: Form = _copied(rounding.frac)
index_add_: Form = _copied(indexing.index_add)
index_copy_: Form = _copied(indexing.index_copy)
index_fill_: Form = _copied(indexing.index_fill)
index_reduce_: Form = _copied(scatter_reduction.index_reduce)
lerp_: Form = _copied(arithmetic.lerp)
logit_: Form = _copied(transcendental.logit)
masked_scatter_: Form = _copied(flat_elements.masked_scatter)
nan_to_num_: Form = _copied(selection.nan_to_num)
put_: Form = _copied(flat_elements.put)
polygamma_: Form = _copied(gamma_function.polygamma_of)
rad2deg_: Form = _copied(transcendental.rad2deg)
round_: Form = _copied(rounding.round)
scatter_: Form = _copied(gathering.scatter)
scatter_add_: Form = _copied(gathering.scatter_add)
scatter_reduce_: Form = _copied(scatter_reduction.scatter_reduce)
tril_: Form = _copied(joining.tril)
triu_: Form = _copied(joining.triu)

as_strided_: Form = _reseen(strided.as_strided)
squeeze_: Form = _reseen(view.squeeze)
t_: Form = _reseen(view.t)
transpose_: Form = _reseen(view.transpose)
unsqueeze_: Form = _reseen(view.unsqueeze)

METHODS["polygamma_"] = METHODS.pop("polygamma_of_")
METHODS["swapaxes_"] = METHODS["swapdims_"] = transpose_
METHODS["__ilshift__"], METHODS["__irshift__"] = bitwise_left_shift_, bitwise_right_shift_
