"""The in-place forms of ops, as methods of `Tensor`: ``x.exp_()`` puts what ``exp(x)`` would return into x's memory.

Each is made from its op by one of four functions: `_of` writes the op's result straight into the memory, `_of_two` does
so for two operands, `_copied` computes a result of its own and copies it, `_reseen` makes the tensor see its memory
differently, which changes no memory and no other tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmflow import interpreter as _interpreter
from vmflow.context import MODE

from . import activation, elementwise, indexing, joining, linear_algebra, reduction, transcendental, view
from .elementwise import Binary, clone, copy_, into
from .table import OPS, OpExpr

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


def _of(op: OpExpr) -> OfOne:
    def form(input: Tensor) -> Tensor:
        return into(op, input, (input,))

    _named(form, op.name)
    return form


def _of_two(op: Binary, check: Callable[[str, Any, Any], None] | None = None) -> OfTwo:
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
        _interpreter.check_fits(f"{name}_", result._blob.meta, input)
        return copy_(input, result)

    _named(form, name)
    return form


def _reseen(function: Form) -> Form:
    name = function.__name__

    def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if MODE.get().grad and input.requires_grad and input.is_leaf:
            raise RuntimeError(
                f"{name}_: a leaf tensor that requires a gradient cannot be changed in place while autograd records; "
                "do it under vmflow.no_grad(), or use the form that returns a new tensor"
            )
        seen = function(input, *args, **kwargs)
        input._blob, input._lease = seen._blob, seen._lease
        if seen.requires_grad:
            input._autograd = seen._autograd
        return input

    _named(form, name)
    return form


abs_: OfOne = _of(elementwise._ABS)
acos_: OfOne = _of(OPS["acos"])
acosh_: OfOne = _of(OPS["acosh"])
asin_: OfOne = _of(OPS["asin"])
asinh_: OfOne = _of(OPS["asinh"])
atan_: OfOne = _of(OPS["atan"])
atanh_: OfOne = _of(OPS["atanh"])
bitwise_not_: OfOne = _of(elementwise._BITWISE_NOT)
ceil_: OfOne = _of(elementwise._CEIL)
cos_: OfOne = _of(elementwise._COS)
cosh_: OfOne = _of(OPS["cosh"])
erf_: OfOne = _of(activation._ERF)
exp_: OfOne = _of(elementwise._EXP)
exp2_: OfOne = _of(OPS["exp2"])
expm1_: OfOne = _of(elementwise._EXPM1)
floor_: OfOne = _of(elementwise._FLOOR)
log_: OfOne = _of(elementwise._LOG)
log10_: OfOne = _of(elementwise._LOG10)
log1p_: OfOne = _of(elementwise._LOG1P)
log2_: OfOne = _of(elementwise._LOG2)
logical_not_: OfOne = _of(elementwise._LOGICAL_NOT)
neg_: OfOne = _of(elementwise._NEG)
reciprocal_: OfOne = _of(elementwise._RECIPROCAL)
rsqrt_: OfOne = _of(elementwise._RSQRT)
sigmoid_: OfOne = _of(activation._SIGMOID)
sign_: OfOne = _of(elementwise._SIGN)
sin_: OfOne = _of(elementwise._SIN)
sinh_: OfOne = _of(OPS["sinh"])
sqrt_: OfOne = _of(elementwise._SQRT)
square_: OfOne = _of(elementwise._SQUARE)
tan_: OfOne = _of(elementwise._TAN)
tanh_: OfOne = _of(activation._TANH)
trunc_: OfOne = _of(elementwise._TRUNC)

atan2_: OfTwo = _of_two(elementwise._ATAN2)
bitwise_and_: OfTwo = _of_two(elementwise._BITWISE_AND)
bitwise_or_: OfTwo = _of_two(elementwise._BITWISE_OR)
bitwise_xor_: OfTwo = _of_two(elementwise._BITWISE_XOR)
clamp_max_: OfTwo = _of_two(elementwise._CLAMP_MAX)
clamp_min_: OfTwo = _of_two(elementwise._CLAMP_MIN)
eq_: OfTwo = _of_two(elementwise._EQ)
floor_divide_: OfTwo = _of_two(elementwise._FLOOR_DIVIDE, elementwise.check_divisor)
fmod_: OfTwo = _of_two(elementwise._FMOD, elementwise.check_divisor)
ge_: OfTwo = _of_two(elementwise._GE)
gt_: OfTwo = _of_two(elementwise._GT)
le_: OfTwo = _of_two(elementwise._LE)
logical_and_: OfTwo = _of_two(elementwise._LOGICAL_AND)
logical_or_: OfTwo = _of_two(elementwise._LOGICAL_OR)
logical_xor_: OfTwo = _of_two(elementwise._LOGICAL_XOR)
lt_: OfTwo = _of_two(elementwise._LT)
ne_: OfTwo = _of_two(elementwise._NE)
remainder_: OfTwo = _of_two(elementwise._REMAINDER, elementwise.check_divisor)

addcdiv_: Form = _copied(elementwise.addcdiv)
addcmul_: Form = _copied(elementwise.addcmul)
addmm_: Form = _copied(linear_algebra.addmm)
baddbmm_: Form = _copied(linear_algebra.baddbmm)
cumprod_: Form = _copied(reduction.cumprod)
cumsum_: Form = _copied(reduction.cumsum)
frac_: Form = _copied(transcendental.frac)
index_add_: Form = _copied(indexing.index_add)
index_copy_: Form = _copied(indexing.index_copy)
index_fill_: Form = _copied(indexing.index_fill)
lerp_: Form = _copied(elementwise.lerp)
logit_: Form = _copied(transcendental.logit)
nan_to_num_: Form = _copied(transcendental.nan_to_num)
round_: Form = _copied(elementwise.round)
scatter_: Form = _copied(indexing.scatter)
scatter_add_: Form = _copied(indexing.scatter_add)
tril_: Form = _copied(joining.tril)
triu_: Form = _copied(joining.triu)

squeeze_: Form = _reseen(view.squeeze)
swapaxes_: Form = _reseen(view.transpose)
t_: Form = _reseen(view.t)
transpose_: Form = _reseen(view.transpose)
unsqueeze_: Form = _reseen(view.unsqueeze)
