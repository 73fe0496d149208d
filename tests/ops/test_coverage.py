"""Every op is compared with an oracle in each dtype it accepts and in shapes of each kind, or refuses them by name.

The rows are data, so their coverage is known without running the other tests, and the calls with dtypes and shapes
that no row covers are made here: they must be refused, or be listed below with a reason.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

import vmflow as flow
from tests.conftest import TEST_DEVICE
from vmflow import dtypes, interpreter
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.ops.creation.ranges import _TRIANGLE_PLACES
from vmflow.ops.fourier.frequencies import _FREQUENCIES
from vmflow.ops.table import OPS
from vmflow.random import standard_gamma

from . import narrow_rows, test_registry
from .oracle import KernelContract, Row, Shapes

for _name in test_registry.DECLARING:
    importlib.import_module(_name)

ROWS: Final[dict[str, list[Row]]] = {}
for _each in (*test_registry.ROWS, *narrow_rows.ROWS):
    ROWS.setdefault(_each.op, []).append(_each)

NAMES: Final = tuple([value.name for value in dtypes.ALL])
NUMBERS: Final = NAMES[1:]
REAL: Final = tuple([value.name for value in dtypes.ALL if not value.is_complex])
FRACTIONS: Final = ("float16", "bfloat16", "float32", "float64")

# Issued as transfers, of which the contract does not know; with no input, for a tensor that is there; and on complex
# numbers, or for transforms also on real ones, that the rows make of their operands.
UNSEEN: Final = ("to_device", "fill", "fft", "irfft", "rfft", "view_as_real")

# The rows make the operands of these ops from others, which may have dtypes that are not listed there.
MADE_OF_OTHERS: Final[dict[str, tuple[str, ...]]] = {
    "fft": ("complex64", "complex128"),
    "irfft": ("complex64", "complex128"),
    "view_as_real": tuple([name for name in NAMES if name not in ("float32", "float64")]),
}

# Made of others, with their dtypes and shapes; tested in tests/ops/test_fused.py and test_formula.py.
COMPOSED: Final = {"fused"} | {name for name, op in OPS.items() if op.infer.__module__ == "vmflow.ops.formula"}


def _made(*shape: int, dtype: flow.dtype) -> TensorMeta:
    return meta(shape, dtype, flow.device("cpu"))


# Ops that make a tensor from no tensor, or by chance: a call for a dtype, those accepted, and those of shapes.  Their
# values are tested in tests/ops/test_creation.py, tests/test_random.py and tests/nn/test_init.py.
Made = tuple[Callable[[Any], flow.Tensor], tuple[str, ...]]
MADE: Final[dict[str, Made]] = {
    "empty": (lambda dtype: flow.empty(2, 3, dtype=dtype), NAMES),
    "arange": (lambda dtype: flow.arange(6, dtype=dtype).reshape(2, 3), NUMBERS),
    "linspace": (lambda dtype: flow.linspace(0, 5, 6, dtype=dtype).reshape(2, 3), NUMBERS),
    "eye": (lambda dtype: flow.eye(2, 3, dtype=dtype), NAMES),
    "frequencies": (
        lambda dtype: interpreter.dispatch(_FREQUENCIES, (), (_made(6, dtype=dtype), 6, False), (1.0,)).reshape(2, 3),
        (*FRACTIONS, "complex64", "complex128"),
    ),
    "triangle_places": (
        lambda dtype: interpreter.dispatch(_TRIANGLE_PLACES, (), (_made(2, 3, dtype=dtype), 2, 2, 0, True)),
        ("int32", "int64"),
    ),
    "randn": (lambda dtype: flow.randn(2, 3, dtype=dtype), (*FRACTIONS, "complex64", "complex128")),
    "rand": (lambda dtype: flow.rand(2, 3, dtype=dtype), (*FRACTIONS, "complex64", "complex128")),
    "randint": (lambda dtype: flow.randint(2, (2, 3), dtype=dtype), REAL),
    "randperm": (
        lambda dtype: flow.randperm(6, dtype=dtype).reshape(2, 3),
        tuple([name for name in REAL if name != "bool"]),
    ),
    "bernoulli": (lambda dtype: flow.bernoulli(flow.ones(2, 3, dtype=dtype)), FRACTIONS),
    "exponential": (lambda dtype: flow.empty(2, 3, dtype=dtype).exponential_(), FRACTIONS),
    "poisson": (lambda dtype: flow.poisson(flow.ones(2, 3, dtype=dtype)), FRACTIONS),
    "standard_gamma": (lambda dtype: standard_gamma(flow.ones(2, 3, dtype=dtype)), FRACTIONS),
    "multinomial": (
        lambda dtype: flow.multinomial(flow.ones(2, 3, dtype=dtype), 3).to(dtype),
        FRACTIONS,
    ),
    "trunc_normal_": (lambda dtype: flow.nn.init.trunc_normal_(flow.ones(2, 3, dtype=dtype)), FRACTIONS),
    "orthogonal_": (lambda dtype: flow.nn.init.orthogonal_(flow.ones(2, 3, dtype=dtype)), FRACTIONS),
}


def _by_rank(*names: str) -> tuple[str, ...]:
    """The names of ops for lines, images and volumes."""
    return tuple([name.format(rank) for name in names for rank in (1, 2, 3)])


# Ops that have a gradient which no row checks, by the reason.
GRADED_ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    "of backward passes, so that the second gradients of forward rows need theirs": (
        *_by_rank("adaptive_avg_pool{}d_gradient", "avg_pool{}d_gradient", "conv{}d_input_gradient"),
        *_by_rank("conv{}d_weight_gradient"),
        *("dropout_gradient", "embedding_gradient", "index_add_to_zeros", "pad_borders_gradient", "plane_scatter"),
        *("recurrence", "relu_gradient", "strided_get"),
    ),
    "of one operand alone; tests/ops/test_special.py": ("igamma", "igammac", "zeta"),
    "complex only; tests/ops/test_elementwise.py": ("conj",),
    "complex only; the second gradients of transforms need its own": ("weighted_half",),
    "always zero; tests/ops/test_elementwise.py": ("fill",),
    "as conv1d and so on, where the weight is recorded, whose rows do": _by_rank("conv{}d_with_columns"),
    "of log-probabilities; test_gradients_through_a_softmax_are_the_numerical_ones": ("ctc_loss",),
}

# Ops that have no result for some extreme numbers, and their exceptions.
ADMITTED: Final[dict[str, str]] = {
    **dict.fromkeys(("floor_divide", "floor_divide_scalar", "fmod", "fmod_scalar"), "ZeroDivisionError"),
    **dict.fromkeys(("remainder", "remainder_scalar", "trunc_divide"), "ZeroDivisionError"),
    **dict.fromkeys(("eig", "eigh", "pinv", "svd", "svdvals"), "LinAlgError"),
    "binary_cross_entropy": "RuntimeError",
    "one_hot": "ValueError",
    "pivots_to_permutation": "IndexError",
}

KINDS: Final = {"0-d": ((),), "empty": ((0,), (2, 0, 3)), "vectors": ((5,),), "matrices": ((3, 4),)}

# Kinds of shapes in which no row runs an op, and whether that is because it refuses them.
_MATRICES: Final = (
    *("cholesky", "det", "diagonal", "eig", "eigh", "inv", "lu_factor", "matrix_exp", "qr", "slogdet"),
    "solve",
    *("solve_triangular", "svd", "svdvals", "triangle"),
)
_LINES_AND_MORE: Final = (
    *_by_rank("adaptive_avg_pool{}d", "adaptive_avg_pool{}d_gradient", "adaptive_max_pool{}d", "avg_pool{}d"),
    *_by_rank("avg_pool{}d_gradient", "conv{}d", "conv{}d_gradient", "conv{}d_input_gradient"),
    *_by_rank("conv{}d_weight_gradient", "conv{}d_with_columns", "max_pool{}d", "max_pool{}d_with_indices"),
    *("col2im", "im2col", "plane_gather", "plane_scatter", "resample"),
    *("scaled_dot_product_attention", "scaled_dot_product_attention_gradient"),
)
BECAUSE_REFUSED: Final[dict[str, tuple[str, ...]]] = {
    "0-d": (
        *(
            *_MATRICES,
            *_LINES_AND_MORE,
            "batch_norm",
            "batch_norm_gradient",
            "batch_norm_inference",
            "cat",
            "layer_norm",
        ),
        *("fft", "irfft", "linear", "matmul", "pad", "rfft", "scatter_diagonal", "slice"),
        *("bincount", "bincount_length", "checked_offsets", "repeated_places", "repetitions", "unfold"),
        "view_as_complex",
        *("pivots_to_permutation", "weighted_half"),
        *("ctc_loss", "ctc_loss_gradient", "gru_layer", "gru_layer_gradient", "largest_of_bag", "lstm_layer"),
        *("lstm_layer_gradient", "pad_borders", "pad_borders_gradient", "rnn_layer", "rnn_layer_gradient"),
    ),
    "vectors": (*_MATRICES, *_LINES_AND_MORE, "batch_norm", "pad_borders", "pad_borders_gradient", "pinv"),
    "matrices": ("bincount", "bincount_length", "checked_offsets", "repeated_places", "repetitions"),
}
BECAUSE_NEEDLESS: Final[dict[str, tuple[str, ...]]] = {
    # These calls need no op there, or have nothing to do.
    "0-d": ("linear_gradient", "recurrence", "roll", "scatter_slices", "strided_get"),
    # Columns are kept of something only, and products of nothing have no gradient to find.
    "empty": (*_by_rank("conv{}d_with_columns"), "recurrence"),
    # The diagonal of a matrix is a view; the gradient is by losses, which have no dimension of classes.
    "matrices": ("scatter_diagonal", "nll_loss_gradient"),
}


def kinds(shape: tuple[int, ...]) -> str:
    """Which kind of shape this is an example of."""
    if 0 in shape:
        return "empty"
    return ("0-d", "vectors", "matrices")[min(len(shape), 2)]


def _squared(call: Callable[..., flow.Tensor]) -> Callable[..., flow.Tensor]:
    return lambda *operands: call(*operands).square()


def _message(row: Row, shapes: Shapes, dtype: str) -> str | None:
    """The message of the error by which a call refuses operands; None if it does not."""
    try:
        row.call(*[flow.tensor(operand) for operand in row.operands(shapes, dtype)]).detach().numpy()
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        return str(error)
    return None


def test_every_op_has_rows_or_is_made_here() -> None:
    missing = sorted(set(OPS) - set(ROWS) - set(MADE) - COMPOSED)
    assert not missing, f"add rows, in the file of the family or in narrow_rows.py, for {', '.join(missing)}"
    assert set(MADE) <= set(OPS)
    assert set(ROWS) <= set(OPS)


@pytest.mark.parametrize("op", sorted(ROWS))
def test_an_op_is_right_in_each_dtype_and_kind_of_shape_or_refuses_it(op: str, contract: KernelContract) -> None:
    if TEST_DEVICE == "cuda" and op.endswith("_with_columns"):
        pytest.skip("CUDA devices keep no columns for the backward pass")
    for row in ROWS[op]:
        row.check_forward()
    ran = contract.ran.get(op, set())
    _check_dtypes(op, {dtype for dtype, _ in ran}, contract)
    _check_shapes(
        op, {shape for _, shape in ran} or {value for row in ROWS[op] for shapes in row.shapes for value in shapes}
    )


def _check_dtypes(op: str, ran: set[str], contract: KernelContract) -> None:
    """Listed dtypes have run; others are refused, or are listed as made of others."""
    listed = {dtype for row in ROWS[op] for dtype in row.dtypes}
    assert "" in ran or op in UNSEEN or listed <= ran, f"the rows of {op} do not run it for {listed - ran}"
    taken: set[str] = set()
    for dtype in sorted(set(NAMES) - listed):
        for row in ROWS[op]:
            contract.ran.clear()
            for value in OPS.values():
                value.forget()
            message = _message(row, row.usual(), dtype)
            if message is None:
                # The call may have made another dtype of it.
                ran = {value for value, _ in contract.ran.get(op, ())}
                if ran & {dtype, ""}:
                    taken.add(dtype)
                continue
            # A call may make integers of bools before the op sees them.
            names = (dtype, "int64") if dtype == "bool" else (dtype,)
            assert any([name in message for name in names]), f"{op} refuses {dtype} without naming it: {message}"
    assert taken == {*MADE_OF_OTHERS.get(op, ())}, f"{op} takes dtypes for which it has no row, or is not in the table"


def _check_shapes(op: str, ran: set[tuple[int, ...]]) -> None:
    """Every kind of them has run or is listed; those that are to be refused are."""
    lacking = set(KINDS) - {kinds(shape) for shape in ran}
    refused = [kind for kind, names in BECAUSE_REFUSED.items() if op in names]
    needless = [kind for kind, names in BECAUSE_NEEDLESS.items() if op in names]
    assert lacking == {*refused, *needless}, f"{op} has no row, or one too many in the tables above, for {lacking}"
    for kind in refused:
        for shape in KINDS[kind]:
            said = [_message(row, tuple([shape for _ in row.shapes[0]]), row.dtypes[0]) for row in ROWS[op]]
            assert any(said), f"{op} takes a shape of {list(shape)}"


@pytest.mark.parametrize("row", [row for row in narrow_rows.ROWS if row.order], ids=str)
def test_gradient(row: Row, contract: KernelContract) -> None:
    row.check_gradient()
    assert row.op in contract.seen or row.op in UNSEEN, f"the gradients checked are not those of {row.op}"


@pytest.mark.parametrize("op", sorted({op for op, rows in ROWS.items() for row in rows if row.order > 1}))
def test_gradients_of_squares(op: str, contract: KernelContract) -> None:
    """Linear functions have constant gradients; those of their squares run the gradients of the backward pass too."""
    for row in ROWS[op]:
        if row.order > 1:
            replace(row, call=_squared(row.call)).check_gradient()


def test_every_gradient_is_compared_with_a_numerical_one_or_listed() -> None:
    graded = {op for op, rows in ROWS.items() if any([row.order for row in rows])}
    listed = {name for names in GRADED_ELSEWHERE.values() for name in names}
    unchecked = {name for name, op in OPS.items() if op.rule is not None and name not in graded and name in ROWS}
    assert unchecked == listed


@pytest.mark.parametrize("op", sorted(ROWS))
def test_extreme_numbers_leak_no_warning(op: str, contract: KernelContract) -> None:
    """Warnings are errors here, and would come up where the result is looked at."""
    failures = {_failure(row, dtype) for row in ROWS[op] for dtype in row.dtypes}
    assert failures <= {"", ADMITTED.get(op)}
    # Overflown sums differ in other layouts; only failures of ops matter here.
    contract.broken.clear()


def _failure(row: Row, dtype: str) -> str:
    """The name of the error that extreme numbers lead to, or nothing."""
    given = [flow.tensor(_extreme(array, dtype)) for array in row.operands(row.usual(), dtype)]
    try:
        row.call(*given).detach().numpy()
    except Exception as error:
        return type(error).__name__
    return ""


def _extreme(array: Any, dtype: str) -> Any:
    kind = dtypes.by_name(dtype)
    if kind.category == dtypes.BOOL:
        return array
    numbers: list[float]
    if kind.category == dtypes.INTEGER:
        whole = dtypes.iinfo(kind)
        numbers = [whole.min, whole.max, 0, 1]
    else:
        limits = dtypes.finfo(kind.to_real())
        numbers = [math.nan, math.inf, -math.inf, -0.0, 0.0, limits.max, -limits.max, limits.tiny]
    return np.resize(np.array(numbers, kind.numpy), array.shape)


def test_the_tables_name_ops_that_are_there() -> None:
    for table in (BECAUSE_REFUSED, BECAUSE_NEEDLESS):
        assert set(table) <= set(KINDS)
        assert {name for names in table.values() for name in names} <= set(ROWS)


@pytest.mark.parametrize("op", sorted(MADE))
def test_new_tensors_have_the_requested_dtype(op: str, contract: KernelContract) -> None:
    call, accepted = MADE[op]
    for dtype in NAMES:
        contract.seen.clear()
        if dtype in accepted:
            made = call(dtypes.by_name(dtype))
            assert made.dtype.name == dtype
            assert made.shape == (2, 3)
            assert made.numpy().dtype == dtypes.by_name(dtype).numpy
            assert op in contract.seen
        else:
            with pytest.raises(TypeError, match=rf"{op}.*{dtype}"):
                call(dtypes.by_name(dtype))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (5,)])
def test_new_tensors_have_the_requested_shape(shape: tuple[int, ...], contract: KernelContract) -> None:
    for made in (
        flow.empty(shape),
        flow.rand(shape),
        flow.randn(shape),
        flow.randint(3, shape),
        flow.bernoulli(flow.ones(shape)),
        flow.nn.init.trunc_normal_(flow.ones(shape)),
    ):
        assert made.shape == shape
        assert made.numpy().shape == shape
    size = shape[0] if shape else 1
    for line in (flow.arange(size), flow.linspace(0, 1, size), flow.randperm(size), flow.eye(size)[:, :1].reshape(-1)):
        assert line.numpy().size == size or not size
