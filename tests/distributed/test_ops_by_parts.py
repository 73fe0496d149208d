"""Functions of global tensors, and their gradients, are those of whole tensors, however operands are spread.

None of these is computed as a whole on every rank: a `BroadcastWarning` is an error here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist, sbp
from vmflow.distributed import global_interpreter
from vmflow.distributed.sbp import NdSbp, Sbp
from vmflow.kernels.problems.recurrent import Layer
from vmflow.nn import functional as F
from vmflow.ops.nn.recurrent import recurrent_layer

pytestmark = pytest.mark.host


class Case(NamedTuple):
    """A function and its arguments.

    Attributes:
        call: from tensors to a tensor.
        operands: shapes of floating-point operands; an integer in a list stands for class indices below that.
        spread: which operands are spread in all ways; the others are broadcast.
    """

    call: Callable[..., flow.Tensor]
    operands: tuple[Any, ...]
    spread: tuple[int, ...] = (0,)

    def made(self) -> list[flow.Tensor]:
        chance = np.random.default_rng(5)
        found = []
        for each in self.operands:
            if isinstance(each, list):
                *shape, below = each
                found.append(flow.tensor(chance.integers(0, below, shape)))
            else:
                found.append(flow.tensor(chance.uniform(0.1, 0.9, each)))
        return found


def _dropped(x: flow.Tensor) -> flow.Tensor:
    flow.manual_seed(9)
    return F.dropout(x, 0.4) + F.dropout(x * 2, 0.4)


def _attended(query: flow.Tensor, key: flow.Tensor, value: flow.Tensor) -> flow.Tensor:
    flow.manual_seed(9)
    return F.scaled_dot_product_attention(query, key, value, dropout_p=0.3)


def _normalized(x: flow.Tensor, weight: flow.Tensor, bias: flow.Tensor) -> flow.Tensor:
    where = {"placement": x.placement, "sbp": (sbp.broadcast,) * len(x.sbp)} if x.is_global else {}
    mean, variance = flow.zeros(6, dtype=flow.float64, **where), flow.ones(6, dtype=flow.float64, **where)
    result = F.batch_norm(x, mean, variance, weight, bias, training=True)
    return result.sum((0, 2)) + mean * 3 + variance * 5 + (result * result).mean((0, 2))


def _lstm(x: flow.Tensor, state: flow.Tensor, by_input: flow.Tensor, by_state: flow.Tensor) -> flow.Tensor:
    layer = Layer("lstm", False, False, False)
    every, last, cell = recurrent_layer(layer, x, state, state * 2, by_input, by_state)
    return every.sum(0) + last * cell


def _changed(x: flow.Tensor, value: flow.Tensor) -> flow.Tensor:
    x = x * 1
    x[1:3] = value[:2] * 2
    x[:, 1] = value[:, 0]
    x[:, [4, 2]] = value[:, :2]
    x[3] = 0.5
    return x * x


CASES: Final[dict[str, Case]] = {
    "mean": Case(lambda x: x.mean(0) * 2 + x.mean(), ((7, 6),)),
    "mean of two": Case(lambda x: x.mean((0, 2), keepdim=True), ((5, 6, 4),)),
    "variance": Case(lambda x: x.var(0), ((7, 6),)),
    "norm": Case(lambda x: flow.linalg.vector_norm(x, dim=0) + flow.linalg.vector_norm(x), ((7, 6),)),
    "amax": Case(lambda x: x.amax(0) + x.amin((0, 1)), ((7, 6),)),
    "any and all": Case(lambda x: x * (x > 0.5).any(0) * (x > 0.05).all(), ((7, 6),)),
    "softmax": Case(lambda x: F.softmax(x, 1), ((7, 6),)),
    "cumsum": Case(lambda x: x.cumsum(0), ((7, 6),)),
    "sort": Case(lambda x: x.sort(0).values + x.topk(2, 1).values.sum(), ((7, 6),)),
    "flip": Case(lambda x: x.flip(0) + x.roll(2, 1) + x.tril() + x.repeat(1, 1), ((7, 6),)),
    "pad": Case(lambda x: F.pad(x, (1, 2)), ((7, 6),)),
    "slices": Case(lambda x: x[1:5] @ x[:, 2:].T[:, :3].T.sum(0).reshape(4, 1).repeat(2, 1)[:6, :1], ((7, 6),)),
    "dropout": Case(_dropped, ((7, 6),)),
    "cross entropy": Case(F.cross_entropy, ((7, 6), [7, 6]), (0, 1)),
    "cross entropy of images": Case(F.cross_entropy, ((5, 4, 3), [5, 3, 4]), (0, 1)),
    "cross entropy, summed": Case(lambda x, t: F.cross_entropy(x, t, reduction="sum"), ((7, 6), [7, 6]), (0, 1)),
    "cross entropy, each": Case(lambda x, t: F.cross_entropy(x, t, reduction="none"), ((7, 6), [7, 6]), (0, 1)),
    "cross entropy, weighted": Case(
        lambda x, t, w: F.cross_entropy(x, t, w, ignore_index=2, label_smoothing=0.1), ((7, 6), [7, 6], (6,)), (0, 1, 2)
    ),
    "nll": Case(lambda x, t: F.nll_loss(F.log_softmax(x, 1), t), ((7, 6), [7, 6]), (0, 1)),
    "other losses": Case(
        lambda x, y: F.mse_loss(x, y) + F.l1_loss(x, y) + F.huber_loss(x, y), ((7, 6), (7, 6)), (0, 1)
    ),
    "linear": Case(F.linear, ((7, 6), (4, 6), (4,)), (0, 1)),
    "convolution": Case(F.conv2d, ((5, 4, 6, 6), (3, 4, 3, 3), (3,)), (0, 1)),
    "convolution of groups": Case(lambda x, w: F.conv1d(x, w, groups=2), ((5, 4, 6), (6, 2, 3)), (0, 1)),
    "transposed convolution": Case(F.conv_transpose1d, ((5, 4, 6), (4, 3, 3)), (0, 1)),
    "pooling": Case(lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 3), ((5, 4, 6, 6),)),
    "interpolation": Case(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), ((5, 4, 3, 3),)),
    "embedding": Case(lambda w, i: F.embedding(i, w), ((7, 6), [5, 3, 7]), (0, 1)),
    "gather": Case(lambda x, i: x.gather(1, i), ((7, 6), [7, 3, 6]), (0, 1)),
    "indexing": Case(lambda x, i: x[i] + x[:, i % 6].sum(), ((7, 6), [4, 7]), (0, 1)),
    "indexing by lists": Case(lambda x: x[[2, 0]] + x[:, np.array([1, 1])].sum(), ((7, 6),)),
    "index_add": Case(lambda x, y, i: x.index_add(0, i, y), ((7, 6), (4, 6), [4, 7]), (0, 1)),
    "layer norm": Case(lambda x, w, b: F.layer_norm(x, (6,), w, b), ((3, 5, 6), (6,), (6,)), (0, 1)),
    "group norm": Case(lambda x: F.group_norm(x, 2), ((5, 4, 3),)),
    "batch norm": Case(_normalized, ((5, 6, 4), (6,), (6,)), (0, 1)),
    "lstm": Case(_lstm, ((4, 5, 3), (5, 6), (24, 3), (24, 6)), (0, 1)),
    "attention": Case(F.scaled_dot_product_attention, ((5, 3, 4, 6),) * 3, (0, 1)),
    "causal attention": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((5, 4, 6), (5, 4, 6), (5, 4, 3)),
        (0, 2),
    ),
    "attention with dropout": Case(_attended, ((5, 3, 4, 6),) * 3),
    "matrices": Case(lambda x: flow.linalg.inv(x + 5 * flow.linalg.inv(x + 9)), ((5, 3, 3),)),
    "solve": Case(lambda a, b: flow.linalg.solve(a @ a.mT + b.sum(), b), ((5, 3, 3), (5, 3, 4)), (0, 1)),
    "fourier": Case(lambda x: flow.fft.rfft(x, dim=1).abs(), ((7, 6),)),
    "unfold": Case(lambda x: F.unfold(x, 2), ((3, 2, 4, 4),)),
    "fold": Case(lambda x: F.fold(x, (4, 4), 2) * F.fold(flow.cat([x, x, x], 1), (4, 4), 2)[:, :2], ((3, 8, 9),)),
    "fill": Case(lambda x: flow.fill(x, 2.5) * x, ((7, 6),)),
    "index_fill": Case(lambda x, i: x.index_fill(1, i, 2.5), ((7, 6), [3, 6])),
    "scatter of a number": Case(lambda x, i: x.scatter(1, i, 2.5), ((7, 6), [7, 2, 6]), (0, 1)),
    "isin": Case(lambda x, i: x * flow.isin(i, 3) * flow.isin(i, flow.unique(i)), ((7, 6), [7, 6, 5])),
    "quantile": Case(
        lambda x: x.quantile(0.4, 1) + x.nanquantile(0.3, 1) + x.quantile(0.6, interpolation="midpoint"), ((7, 6),)
    ),
    "pdist": Case(lambda x: F.pdist(x), ((7, 6),)),
    "vander": Case(lambda x, i: flow.vander(x, 4) + flow.vander(i, 4), ((7,), [7, 3])),
    "xlog1py": Case(lambda x: flow.special.xlog1py(x, 2.0) + flow.special.xlog1py(2.0, x), ((7, 6),)),
    "affine_grid": Case(lambda x: F.affine_grid(x, (5, 1, 3, 4)), ((5, 2, 3),)),
    "einsum": Case(lambda x, y: flow.einsum("bij,bjk->bik", x, y), ((5, 3, 4), (5, 4, 2)), (0, 1)),
}

ONE_AXIS: Final[list[NdSbp]] = [(each,) for each in (sbp.split(0), sbp.split(1), sbp.broadcast, sbp.partial_sum)]
TWO_AXES: Final[list[NdSbp]] = [
    (sbp.split(0), sbp.split(1)),
    (sbp.split(0), sbp.split(0)),
    (sbp.split(1), sbp.split(1)),
    (sbp.split(1), sbp.partial_sum),
    (sbp.broadcast, sbp.split(0)),
]


def _ways(case: Case, sbps: list[NdSbp]) -> Iterator[list[NdSbp]]:
    everywhere: NdSbp = (sbp.broadcast,) * len(sbps[0])
    made = case.made()
    choices = []
    for place, each in enumerate(made):
        fits = [nd for nd in sbps if place in case.spread and all([_fits(each, one) for one in nd])]
        choices.append(fits or [everywhere])
    for way in product(*choices):
        yield list(way)


def _fits(tensor: flow.Tensor, one: Sbp) -> bool:
    return one.dim < tensor.ndim and (one != sbp.partial_sum or tensor.is_floating_point())


def _with_gradients(case: Case, operands: list[flow.Tensor]) -> list[np.ndarray]:
    leaves = [each for each in operands if each.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()
    result = case.call(*operands)
    factor = flow.tensor(np.cos(np.arange(result.numel())).reshape(tuple(result.shape)))
    if result.is_global:
        factor = factor.to_global(placement=result.placement, sbp=(sbp.broadcast,) * len(result.sbp))
    (result * factor).sum().backward()
    return [result.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]]


def _check(case: Case, where: flow.placement, sbps: list[NdSbp], one_in: int = 1) -> None:
    wanted = _with_gradients(case, case.made())
    everywhere: NdSbp = (sbp.broadcast,) * len(sbps[0])
    for way in list(_ways(case, sbps))[::one_in]:
        operands = [
            each.to_global(placement=where, sbp=everywhere).to_global(sbp=nd)
            for each, nd in zip(case.made(), way, strict=True)
        ]
        found = _with_gradients(case, operands)
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=f"{way}, result {place}")


# With two axes there are many ways, of which others show the same: all five of one operand, a third of those of more.
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("ranks", "one_in"), [(3, 1), (4, 3), pytest.param(4, 1, marks=pytest.mark.exhaustive)], ids=["3", "4", "4-all"]
)
def test_results_and_gradients_are_those_of_whole_tensors(
    name: str, ranks: int, one_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> None:
        if ranks == 4:
            case = CASES[name]
            few = len(case.spread) == 1
            _check(case, flow.placement("cpu", [[0, 1], [2, 3]]), TWO_AXES, 1 if few else one_in)
        else:
            _check(CASES[name], flow.placement.all("cpu"), ONE_AXIS)

    monkeypatch.setattr(global_interpreter, "_WARNED", set())
    dist.simulate(program, ranks)


@pytest.mark.filterwarnings("ignore::vmflow.errors.BroadcastWarning")
@pytest.mark.parametrize("ranks", [3, 4])
def test_writes_into_parts_of_tensors_with_gradients(ranks: int) -> None:
    case = Case(_changed, ((7, 6), (7, 6)), (0, 1))

    def program() -> None:
        if ranks == 4:
            _check(case, flow.placement("cpu", [[0, 1], [2, 3]]), TWO_AXES[:3])
        else:
            _check(case, flow.placement.all("cpu"), ONE_AXIS)

    dist.simulate(program, ranks)


RANDOM: Final[dict[str, Callable[[flow.Tensor], flow.Tensor]]] = {
    "normal by means": lambda x: flow.normal(x, 2.0),
    "normal by deviations": lambda x: flow.normal(0.5, x),
    "bernoulli": lambda x: flow.bernoulli(x, 0.4),
    "bernoulli by elements": flow.bernoulli,
    "bernoulli_": lambda x: x.clone().bernoulli_(0.4),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "geometric_": lambda x: x.clone().geometric_(0.4),
    "sparse_": lambda x: flow.nn.init.sparse_(x.clone(), 0.4),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "fractional pooling": lambda x: F.fractional_max_pool2d(x.reshape(1, 1, 7, 6), 2, (3, 4)),
    "samples": lambda x: flow.distributions.Normal(x, 2.0).sample((2,)),
}


@pytest.mark.filterwarnings("ignore::vmflow.errors.BroadcastWarning")
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_beside_a_global_tensor_are_global_and_those_of_one_rank(name: str) -> None:
    def program() -> None:
        x = flow.tensor(np.random.default_rng(5).uniform(0.1, 0.9, (7, 6)))
        flow.manual_seed(4)
        wanted = RANDOM[name](x).numpy()
        for (each,) in ONE_AXIS[:3]:
            flow.manual_seed(4)
            found = RANDOM[name](x.to_global(flow.placement.all("cpu"), sbp.broadcast).to_global(sbp=each))
            assert found.is_global
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-9)

    dist.simulate(program, 3)


MAKERS: Final[dict[str, Callable[..., flow.Tensor]]] = {
    "tensor": lambda **to: flow.tensor(np.arange(12.0).reshape(4, 3), **to),
    "zeros": lambda **to: flow.zeros(4, 3, **to),
    "ones": lambda **to: flow.ones(4, 3, **to),
    "full": lambda **to: flow.full((4, 3), 2.5, **to),
    "arange": lambda **to: flow.arange(3, 17, 2, **to),
    "linspace": lambda **to: flow.linspace(0, 1, 7, **to),
    "logspace": lambda **to: flow.logspace(0, 1, 7, **to),
    "eye": lambda **to: flow.eye(4, 3, **to),
    "rand": lambda **to: flow.rand(4, 3, **to),
    "randn": lambda **to: flow.randn(4, 3, **to),
    "randint": lambda **to: flow.randint(0, 9, (4, 3), **to),
    "randperm": lambda **to: flow.randperm(7, **to),
}


@pytest.mark.parametrize("name", MAKERS)
def test_functions_that_make_tensors_take_a_placement(name: str) -> None:
    def program() -> None:
        maker = MAKERS[name]
        flow.manual_seed(4)
        wanted = maker().numpy()
        for nd in (*TWO_AXES, (sbp.partial_sum, sbp.broadcast)):
            if any([one.dim >= wanted.ndim for one in nd]):
                continue
            flow.manual_seed(4)
            found = maker(placement=flow.placement("cpu", [[0, 1], [2, 3]]), sbp=nd)
            assert found.sbp == nd
            np.testing.assert_array_equal(found.numpy(), wanted)
            elsewhere = maker(placement=flow.placement("cpu", [1, 3]), sbp=sbp.split(0))
            assert (
                elsewhere.to_local().numel() == (wanted.size // 2 if dist.get_rank() in (1, 3) else 0)
                or wanted.size % 2
            )
        with pytest.raises(
            TypeError, match=f"{name if name != 'logspace' else 'linspace'}: a global tensor needs both"
        ):
            maker(sbp=sbp.broadcast)

    dist.simulate(program, 4)


def test_new_tensors_beside_a_global_one_are_global() -> None:
    def program() -> None:
        x = flow.ones(5, 3, placement=flow.placement.all("cpu"), sbp=sbp.split(0))
        assert x.new_zeros(5, 3).sbp == (sbp.split(0),)
        assert x.new_ones(7).sbp == x.new_full((7,), 3).sbp == x.new_tensor([1, 2]).sbp == (sbp.broadcast,)
        assert x.new_empty(6, placement=x.placement, sbp=sbp.split(0)).to_local().shape == (3,)
        assert x.new_tensor([1, 2]).tolist() == [1.0, 2.0]
        assert not x.new_zeros(5, 3, device="cpu").is_global

    dist.simulate(program, 2)
