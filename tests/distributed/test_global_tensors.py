"""Global tensors: programs as if for one device, whose tensors are spread over ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist, nn, optim, sbp
from vmflow.distributed import global_interpreter
from vmflow.distributed.global_tensors import part_of

from . import random_programs

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore::vmflow.errors.BroadcastWarning")]

SBPS = [sbp.split(0), sbp.split(1), sbp.broadcast, sbp.partial_sum]


# OneFlow's documented examples, on two ranks


def test_parts_of_a_tensor_that_is_made_of_local_ones() -> None:
    def program() -> Any:
        x = flow.full((2, 5), float(dist.get_rank()))
        assert not x.is_global
        assert x.is_local
        y = x.to_global(placement=flow.placement("cpu", ranks=[0, 1]), sbp=flow.sbp.split(0))
        assert y.is_global
        assert not y.is_local
        assert (y.placement, y.sbp) == (flow.placement("cpu", ranks=[0, 1]), (flow.sbp.split(0),))
        return tuple(y.shape), tuple(y.to_local().shape), y.to_local().tolist() == x.tolist(), y.sum(1).tolist()

    assert dist.simulate(program) == [((4, 5), (2, 5), True, [0.0, 0.0, 5.0, 5.0])] * 2


def test_a_tensor_that_is_made_globally() -> None:
    def program() -> Any:
        where = flow.placement("cpu", ranks=[0, 1])
        x = flow.randn(4, 5, placement=where, sbp=flow.sbp.split(0))
        y = flow.randn(4, 5, placement=where, sbp=flow.sbp.broadcast)
        return tuple(x.to_local().shape), tuple(y.to_local().shape), x.tolist(), y.tolist()

    (one, _, x, y), (two, _, again, other) = dist.simulate(program)
    assert (one, two) == ((2, 5), (2, 5))
    assert x == again != y == other


def test_one_matmul_is_data_or_model_parallel_by_the_sbp_of_its_operands() -> None:
    def program() -> Any:
        where = flow.placement("cpu", ranks=[0, 1])
        x = flow.arange(20).float().reshape(4, 5)
        w = flow.arange(40).float().reshape(5, 8)
        whole = [each.to_global(placement=where, sbp=sbp.broadcast) for each in (x, w)]
        data = whole[0].to_global(sbp=sbp.split(0)) @ whole[1]
        model = whole[0] @ whole[1].to_global(sbp=sbp.split(1))
        inner = whole[0].to_global(sbp=sbp.split(1)) @ whole[1].to_global(sbp=sbp.split(0))
        wanted = (x @ w).tolist()
        return [
            (str(each.sbp[0]), tuple(each.to_local().shape), each.tolist() == wanted) for each in (data, model, inner)
        ]

    assert dist.simulate(program) == [[("S(0)", (2, 8), True), ("S(1)", (4, 4), True), ("P", (4, 8), True)]] * 2


def test_a_pipeline_of_two_placements() -> None:
    def program() -> Any:
        first, second = flow.placement("cpu", ranks=[0, 1]), flow.placement("cpu", ranks=[2, 3])
        x = flow.ones(4, 5, placement=first, sbp=sbp.split(0))
        w = flow.ones(5, 8, placement=first, sbp=sbp.broadcast)
        v = flow.ones(8, 6, placement=second, sbp=sbp.split(1))
        hidden = x @ w
        y = hidden.to_global(placement=second, sbp=sbp.broadcast) @ v
        return tuple(y.shape), tuple(y.to_local().shape), str(y.sbp[0])

    found = dist.simulate(program, 4)
    assert found == [((4, 6), (0, 0), "S(1)")] * 2 + [((4, 6), (4, 3), "S(1)")] * 2


# Values and gradients, by any spread


OPS: dict[str, Callable[..., flow.Tensor]] = {
    "add": lambda x, w: x + w,
    "mul": lambda x, w: x * w * 2,
    "matmul": lambda x, w: x @ w.t(),
    "linear": lambda x, w: nn.functional.linear(x, w, w.sum(1)),
    "relu": lambda x, w: (x - w).relu(),
    "softmax": lambda x, w: x.softmax(1) * w.log_softmax(0),
    "mean": lambda x, w: x.mean(0) + w.mean(1, keepdim=True),
    "norm": lambda x, w: x / (w * w).sum(1, keepdim=True).sqrt(),
    "views": lambda x, w: x.t().reshape(5, 7) + w[1:, :].sum() + w.unsqueeze(1).expand(7, 3, 5).sum(1).t(),
    "cat": lambda x, w: flow.cat([x, w, x], 1),
    "where": lambda x, w: flow.where(x > w, x, w * 3),
    "cumsum": lambda x, w: x.cumsum(0) - w.cumsum(1),
    "max": lambda x, w: x.amax(1) + w.max(),
    "scalar": lambda x, w: (1 - x) ** 2 + (w / 3).exp(),
    "index": lambda x, w: x[2] + w.diagonal().sum(),
}


def reference(function: Callable[..., flow.Tensor], x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    a, b = [flow.tensor(each, requires_grad=True) for each in (x, w)]
    y = function(a, b)
    (y * y).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    return [y.detach().numpy(), a.grad.numpy(), b.grad.numpy()]


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_values_and_gradients(name: str, ranks: int) -> None:
    chance = np.random.default_rng(3)
    x, w = chance.normal(size=(7, 5)), chance.normal(size=(7, 5))
    wanted = reference(OPS[name], x, w)

    def program() -> list[Any]:
        where = flow.placement.all("cpu")
        found = []
        for one in SBPS:
            for other in SBPS:
                # By way of broadcast, so that a partial sum is one of the whole.
                a, b = [
                    flow.tensor(each).to_global(placement=where, sbp=sbp.broadcast).to_global(sbp=how)
                    for each, how in ((x, one), (w, other))
                ]
                a.requires_grad_(), b.requires_grad_()
                y = OPS[name](a, b)
                (y * y).sum().backward()
                assert a.grad is not None
                assert b.grad is not None
                found.append((f"{one} {other}", y.detach().numpy(), a.grad.numpy(), b.grad.numpy()))
        return found

    for found in dist.simulate(program, ranks, seed=1):
        for spread, *arrays in found:
            for array, right in zip(arrays, wanted, strict=True):
                np.testing.assert_allclose(array, right, rtol=1e-12, atol=1e-12, err_msg=spread)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_numbers_do_not_depend_on_the_spread(ranks: int) -> None:
    def program() -> list[Any]:
        where = flow.placement.all("cpu")
        found = []
        for how in SBPS:
            flow.manual_seed(5)
            found.append([make(7, 6, placement=where, sbp=how).tolist() for make in (flow.randn, flow.rand)])
        flow.manual_seed(5)
        return [*found, [flow.randn(7, 6).tolist(), flow.rand(7, 6).tolist()]]

    for found in dist.simulate(program, ranks):
        assert all([each == found[0] for each in found])


# In place


def test_changes_in_place_change_the_parts() -> None:
    def program() -> Any:
        where = flow.placement.all("cpu")
        x = flow.ones(4, 3, placement=where, sbp=sbp.split(0))
        part = part_of(x)
        x.add_(1).mul_(flow.full((3,), 2.0).to_global(placement=where, sbp=sbp.broadcast))
        x[:, 1].zero_()
        assert part_of(x) is part
        with pytest.raises(RuntimeError, match="shares no memory with it"):
            x[1:].zero_()
        return x.tolist()

    assert dist.simulate(program) == [[[4.0, 0.0, 4.0]] * 4] * 2


def test_whether_a_view_shares_memory_is_the_same_on_all_ranks() -> None:
    def program() -> list[Any]:
        # Ranks 2 and 3 have no part, and those of ranks 0 and 1 differ in size.
        x = flow.ones(3, 2, placement=flow.placement("cpu", [0, 1]), sbp=sbp.split(0))
        x[:, 1].zero_()
        inside = dist.get_rank() < 2
        found = [x.tolist() if inside else None]
        # A row of one element could be seen in any shape, one of two could not.
        with pytest.raises(RuntimeError, match="shares no memory with it"):
            x.t().reshape(6).add_(1)
        flat = x.to_global(sbp=sbp.broadcast).t().reshape(6)
        x.add_(5)
        x.unsqueeze(0).squeeze(0).mul_(2)
        return [*found, flat.tolist(), x.tolist()] if inside else found

    found = dist.simulate(program, 4)
    assert found[:2] == [[[[1, 0]] * 3, [1, 1, 1, 0, 0, 0], [[12, 10]] * 3]] * 2


@pytest.mark.parametrize("how", SBPS)
def test_a_view_that_shares_no_memory_sees_no_change(how: Any) -> None:
    def program() -> Any:
        x = flow.ones(4, 6, placement=flow.placement.all("cpu"), sbp=sbp.broadcast).to_global(sbp=how)
        view = x.t().reshape(24)
        other = x[1:]
        x.mul_(2)
        return [sorted(set(each.numpy().reshape(-1).tolist())) for each in (view, other)]

    found = dist.simulate(program, 3)
    # All of its elements have changed, or none has, and that on all ranks.
    assert found[0] in ([[one], [other]] for one in (1, 2) for other in (1, 2))
    assert found == [found[0]] * 3


def test_strides_are_those_of_the_whole_in_c_order() -> None:
    def program() -> None:
        whole = flow.arange(12.0).reshape(4, 3)
        for how in SBPS[:3]:
            x = whole.to_global(flow.placement.all("cpu"), sbp.broadcast).to_global(sbp=how)
            assert x[1].storage_offset() == 0
            for each, local in ((x, whole), (x[1:], whole[1:].clone()), (x.t(), whole.t().contiguous())):
                assert each.as_strided((2, 2), (1, 3)).tolist() == local.as_strided((2, 2), (1, 3)).tolist()
                found = each.as_strided_scatter(flow.zeros_like(x)[:2, :2], (2, 2), (5, 2), 1)
                assert found.tolist() == local.as_strided_scatter(flow.zeros(2, 2), (2, 2), (5, 2), 1).tolist()

    dist.simulate(program, 2)


# Mistakes


def test_mistakes() -> None:
    def program() -> None:
        where = flow.placement("cpu", [0, 1])
        x = flow.ones(4, 3, placement=where, sbp=sbp.split(0))
        with pytest.raises(RuntimeError, match=r"add: operand 1 is a local tensor and another a global one; spread it"):
            x + flow.ones(4, 3)
        with pytest.raises(RuntimeError, match="operand 0 is a local tensor"):
            flow.ones(3).mul_(x[0])
        with pytest.raises(RuntimeError, match="operand 1 is a local tensor and another a global one"):
            flow.add(flow.ones(4, 3), flow.ones(4, 3), out=x)
        with pytest.raises(RuntimeError, match="operand 0 is a local tensor and another a global one"):
            flow.add(x, x, out=flow.ones(4, 3))
        for change in (
            lambda: x.copy_(flow.ones(4, 3)),
            lambda: x.fill_(flow.tensor(1.0)),
            lambda: x.to_global(sbp=sbp.broadcast).__setitem__(slice(2), flow.ones(2, 3)),
        ):
            with pytest.raises(RuntimeError, match="operand 0 is a local tensor and another a global one; spread it"):
                change()
        with pytest.raises(RuntimeError, match=r"a global tensor cannot be copied to sim:0; move it by to_global"):
            x.to("sim")
        with pytest.raises(RuntimeError, match="a global tensor cannot be copied to sim:0"):
            flow.ones(4, 3, device="sim").copy_(x)
        with pytest.raises(ValueError, match=r"a local tensor needs placement= and sbp="):
            flow.ones(3).to_global(sbp=sbp.broadcast)
        with pytest.raises(ValueError, match=r"there is no dimension 2 in a tensor of shape \[4, 3\]"):
            x.to_global(sbp=sbp.split(2))
        with pytest.raises(ValueError, match="an sbp for each of 1 axes of the placement, got 2"):
            x.to_global(sbp=[sbp.split(0), sbp.broadcast])
        with pytest.raises(TypeError, match=r"expected sbp\.split"):
            x.to_global(sbp="broadcast")
        for wrong in (1, "broadcast"):
            with pytest.raises(TypeError, match=rf"expected sbp\.split.*, got {wrong!r}"):
                x.to_global(sbp=wrong)
        with pytest.raises(TypeError, match=r"expected sbp\.split.*, got 'broadcast'"):
            flow.ones(3).to_global(where, sbp.broadcast, grad_sbp="broadcast")
        for tensor in (x, flow.ones(3)):
            with pytest.raises(TypeError, match=r"placement= must be a vmflow\.placement, got 'cpu'"):
                tensor.to_global("cpu", sbp.broadcast)
        with pytest.raises(TypeError, match="needs both placement= and sbp="):
            flow.ones(3, placement=where)
        with pytest.raises(ValueError, match="the tensor is local"):
            flow.ones(3).to_local()
        with pytest.raises(AttributeError, match="a local tensor has no sbp"):
            flow.ones(3).sbp  # noqa: B018
        mixed = flow.ones(3, dtype=flow.float64 if dist.get_rank() else flow.float32)
        with pytest.raises(TypeError, match=r"ranks \[0, 1\] have tensors of float32, float64; convert them"):
            mixed.to_global(placement=where, sbp=sbp.broadcast)
        uneven = flow.ones(2 + 3 * dist.get_rank(), 3)
        with pytest.raises(
            ValueError, match=r"rank 0 should have a part of shape \[4, 3\] of \[7, 3\], and has \[2, 3\]"
        ):
            uneven.to_global(placement=where, sbp=sbp.split(0))

    dist.simulate(program)


def test_an_op_without_a_rule_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> None:
        x = flow.rand(6, 6, placement=flow.placement.all("cpu"), sbp=sbp.split(0))
        for each in (x.to_global(sbp=sbp.broadcast), x, x * 2):
            found = each.histc(4)
            assert found.sbp == (sbp.broadcast,)
        np.testing.assert_array_equal(found.numpy(), flow.tensor(2 * x.numpy()).histc(4).numpy())

    monkeypatch.setattr(global_interpreter, "_WARNED", set())
    with pytest.warns(dist.BroadcastWarning, match="histogram of tensors that are split") as told:
        dist.simulate(program, 2)
    assert len(told) == 1


def test_arrays_are_copies_on_every_rank() -> None:
    def program() -> None:
        x = flow.ones(3, placement=flow.placement.all("cpu"), sbp=sbp.broadcast)
        array = np.asarray(x)
        array[0] = 5.0
        assert x.tolist() == [1.0, 1.0, 1.0]

    dist.simulate(program, 2)


def test_memory_of_several_ranks_is_not_shared_as_one() -> None:
    def program() -> None:
        x = flow.arange(4.0).to_global(flow.placement("cpu", [0, 1]), sbp.broadcast)
        with pytest.raises(ValueError, match="memory of a global tensor cannot be lent"):
            np.array(x, copy=False)
        with pytest.raises(BufferError, match="a global tensor reaches the CPU by a copy only"):
            np.from_dlpack(x, copy=False)
        assert np.from_dlpack(x).tolist() == [0, 1, 2, 3]
        assert not hasattr(x, "__array_interface__")
        assert not hasattr(x, "__cuda_array_interface__")
        with pytest.raises(RuntimeError, match=r"data_ptr: a global tensor.*to_local"):
            x.data_ptr()
        with pytest.raises(RuntimeError, match=r"a global tensor.*to_local"):
            x.storage().tolist()
        if dist.get_rank() == 0:  # no function about memory waits for the other rank
            part = x.to_local()
            assert part.data_ptr() == part.untyped_storage().data_ptr() != 0
            assert not x.is_pinned()

    dist.simulate(program, 2)


def test_the_text_names_placement_and_sbp() -> None:
    def program() -> list[str]:
        x = flow.arange(4.0).to_global(flow.placement.all("cpu"), sbp.broadcast)
        return [
            " ".join(repr(each).split()) for each in (x, x.to_global(sbp=sbp.split(0)).requires_grad_(), x.long().sum())
        ]

    where = "placement=vmflow.placement(type='cpu', ranks=[0, 1])"
    wanted = [
        f"tensor([0., 1., 2., 3.], {where}, sbp=(vmflow.sbp.broadcast,))",
        f"tensor([0., 1., 2., 3.], {where}, sbp=(vmflow.sbp.split(dim=0),), requires_grad=True)",
        f"tensor(6, {where}, sbp=(vmflow.sbp.broadcast,))",
    ]
    assert dist.simulate(program, 2) == [wanted] * 2


def test_a_read_that_exchanges_parts_warns_of_the_exchange_in_coroutines() -> None:
    async def program() -> list[str]:
        x = flow.ones(4, placement=flow.placement.all("cpu"), sbp=sbp.split(0)) * 2
        await x
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert x.tolist() == [2.0] * 4
        whole = await x.to_global(sbp=sbp.broadcast)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert whole.tolist() == [2.0] * 4
        return [str(warning.message) for warning in told]

    said = [message for messages in dist.simulate(program, 2, delay=1.0) for message in messages]
    assert said
    assert all(["await tensor.to_global(sbp=sbp.broadcast)" in message for message in said])


def test_a_tensor_is_ready_when_the_part_of_this_rank_is() -> None:
    def program() -> list[bool]:
        x = flow.ones(4, placement=flow.placement("cpu", [0, 1]), sbp=sbp.split(0))
        summed = x.sum().to_global(sbp=sbp.broadcast)
        before = summed.is_ready()
        summed.tolist()
        return [before, summed.is_ready()]

    assert dist.simulate(program, 2, delay=1.0) == [[False, True]] * 2


def test_only_ranks_of_the_placement_look_at_a_tensor() -> None:
    def program() -> None:
        x = flow.ones(4, placement=flow.placement("cpu", [0, 1]), sbp=sbp.split(0))
        y = x * 2
        if dist.get_rank() == 2:
            with pytest.raises(RuntimeError, match="rank 2 has no part of a tensor that is"):
                y.tolist()
        else:
            assert y.tolist() == [2.0] * 4

    dist.simulate(program, 3)


def test_a_local_tensor_moves_to_the_device_of_its_placement() -> None:
    def program() -> None:
        where = flow.placement.all("sim")
        x = flow.ones(2, device="cpu", requires_grad=True)
        spread = x.to_global(where, sbp.split(0))
        assert (spread.device.type, spread.to_local().device.type) == ("sim", "sim")
        (spread + flow.ones(4, placement=where, sbp=sbp.split(0))).sum().backward()
        assert x.grad is not None
        assert x.grad.device.type == "cpu"
        assert x.grad.tolist() == [1.0, 1.0]

    dist.simulate(program, 2)


def test_graphs_refuse_global_tensors_in_words() -> None:
    class Double(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return x * 2

    class Maker(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return x + flow.ones(3, placement=flow.placement.all("cpu"), sbp=sbp.broadcast).to_local()

    class Linear(nn.Graph):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> flow.Tensor:
            result: flow.Tensor = self.model(x)
            return result

    def program() -> None:
        where = flow.placement.all("cpu")
        x = flow.ones(3, placement=where, sbp=sbp.broadcast)
        message = "has a global tensor of shape .*: graphs compute local tensors only"
        with pytest.raises(RuntimeError, match=message):
            Double()(x)
        with pytest.raises(RuntimeError, match=message):
            Maker()(flow.ones(3))
        with pytest.raises(RuntimeError, match=message):
            Linear(nn.Linear(3, 3).to_global(where, sbp.broadcast))(flow.ones(3))
        assert Double()(x.to_local()).tolist() == [2.0, 2.0, 2.0]

    dist.simulate(program, 2)


# Training


def train(spread: Callable[[flow.Tensor, str], flow.Tensor]) -> list[float]:
    """Twenty steps of an MLP; `spread` says how data and weights are spread, by their names."""
    flow.manual_seed(3)
    chance = np.random.default_rng(1)
    x, y = chance.normal(size=(12, 6)), chance.normal(size=(12, 4))
    weights = {
        "first": flow.tensor(chance.normal(size=(8, 6)) * 0.3),
        "first bias": flow.tensor(chance.normal(size=(8,)) * 0.3),
        "second": flow.tensor(chance.normal(size=(4, 8)) * 0.3),
    }
    data, target = spread(flow.tensor(x), "data"), spread(flow.tensor(y), "target")
    parameters = {name: spread(each, name).requires_grad_() for name, each in weights.items()}
    losses = []
    for _ in range(20):
        hidden = nn.functional.linear(data, parameters["first"], parameters["first bias"]).tanh()
        loss = ((nn.functional.linear(hidden, parameters["second"]) - target) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        with flow.no_grad():
            for each in parameters.values():
                assert each.grad is not None
                each.sub_(each.grad * 0.1)
                each.grad = None
    return losses


MESHES: dict[str, tuple[Any, dict[str, Any]]] = {
    "data": ([0, 1, 2, 3], {"data": sbp.split(0), "target": sbp.split(0)}),
    "tensor": ([0, 1, 2, 3], {"first": sbp.split(0), "first bias": sbp.split(0), "second": sbp.split(1)}),
    "both": (
        [[0, 1], [2, 3]],
        {
            "data": [sbp.split(0), sbp.broadcast],
            "target": [sbp.split(0), sbp.broadcast],
            "first": [sbp.broadcast, sbp.split(0)],
            "first bias": [sbp.broadcast, sbp.split(0)],
            "second": [sbp.broadcast, sbp.split(1)],
        },
    ),
}


@pytest.mark.parametrize("mesh", MESHES)
def test_an_mlp_trains_as_on_one_rank(mesh: str) -> None:
    ranks, how = MESHES[mesh]

    def program() -> list[float]:
        where = flow.placement("cpu", ranks)
        everywhere = [sbp.broadcast] * len(where.shape)

        def spread(tensor: flow.Tensor, name: str) -> flow.Tensor:
            return tensor.to_global(placement=where, sbp=everywhere).to_global(sbp=how.get(name, everywhere)).detach()

        return train(spread)

    wanted = train(lambda tensor, name: tensor)
    assert wanted[-1] < 0.7 * wanted[0]
    for losses in dist.simulate(program, 4, seed=2, delay=0.1):
        np.testing.assert_allclose(losses, wanted, rtol=1e-10)


def train_module(optimizer: type[optim.Optimizer], placement: Any = None) -> list[float]:
    """Ten steps of a module with dense layers, norms and a loss of classes, its batch split over the ranks."""
    flow.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    chance = np.random.default_rng(0)
    x, y = flow.tensor(chance.normal(size=(12, 6)).astype("f4")), flow.tensor(chance.integers(0, 4, 12))
    if placement is not None:
        model.to_global(placement, sbp.broadcast)
        x, y = [each.to_global(placement, sbp.broadcast).to_global(sbp=sbp.split(0)) for each in (x, y)]
    stepper = optimizer(model.parameters(), lr=0.05)  # type: ignore[call-arg]
    losses = []
    for _ in range(10):
        loss = nn.functional.cross_entropy(model(x), y)
        stepper.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        stepper.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("optimizer", [optim.SGD, optim.AdamW, optim.RMSprop, optim.Adagrad])
def test_a_module_trains_as_on_one_rank(optimizer: type[optim.Optimizer]) -> None:
    wanted = train_module(optimizer)
    assert wanted[-1] < wanted[0]
    for losses in dist.simulate(lambda: train_module(optimizer, flow.placement.all("cpu")), 3, seed=4):
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)


SPLITS: dict[str, Any] = {
    "split": ([0, 1, 2, 3], [sbp.split(0)]),
    "unevenly": ([0, 1, 2], [sbp.split(1)]),
    "one axis": ([[0, 1], [2, 3]], [sbp.broadcast, sbp.split(0)]),
    "both axes": ([[0, 1], [2, 3]], [sbp.split(1), sbp.split(0)]),
    "broadcast": ([0, 1, 2, 3], [sbp.broadcast]),
}


def spread(array: np.ndarray, ranks: Any, how: list[sbp.Sbp]) -> flow.Tensor:
    return flow.tensor(array, placement=flow.placement("cpu", ranks), sbp=how)


def with_gradient(values: np.ndarray, gradient: np.ndarray, ranks: Any, how: list[sbp.Sbp]) -> nn.Parameter:
    parameter = nn.Parameter(spread(values, ranks, how))
    parameter.grad = spread(gradient, ranks, how)
    return parameter


@pytest.mark.parametrize("order", [1.0, 2.0, 2.5, np.inf])
@pytest.mark.parametrize("ways", [*[(way,) for way in SPLITS], tuple(SPLITS)], ids=" and ".join)
def test_norms_of_gradients_are_those_of_the_whole(ways: tuple[str, ...], order: float) -> None:
    gradients = np.random.default_rng(0).normal(size=(len(ways), 4, 4))
    norm = np.linalg.norm(gradients.reshape(-1), order)

    def program() -> None:
        tensors = [spread(gradient, *SPLITS[way]) for gradient, way in zip(gradients, ways, strict=True)]
        parameters = [nn.Parameter(flow.zeros_like(tensor)) for tensor in tensors]
        for parameter, tensor in zip(parameters, tensors, strict=True):
            parameter.grad = tensor
        if ways != ("unevenly",) or dist.get_rank() < 3:
            for found in (
                nn.utils.get_total_norm(tensors, order),
                nn.utils.clip_grad_norm_(parameters, 0.1, order),
            ):
                np.testing.assert_allclose(found.item(), norm, rtol=1e-12)
            for tensor, gradient in zip(tensors, gradients, strict=True):
                if dist.get_rank() in tensor.placement.group:
                    np.testing.assert_allclose(tensor.numpy(), gradient * 0.1 / (norm + 1e-6), rtol=1e-12)

    dist.simulate(program, 4, seed=1)


def test_the_norm_of_stages_on_several_ranks() -> None:
    def program() -> tuple[float, float]:
        first = spread(np.array([3.0, 0.0]), [0], [sbp.broadcast])
        second = spread(np.array([0.0, 4.0]), [1, 2], [sbp.split(0)])
        local = flow.tensor([12.0 * dist.get_rank()])
        whole = nn.utils.get_total_norm([second, first])
        return whole.item(), nn.utils.get_total_norm([first, local, second]).item()

    found = dist.simulate(program, 3)
    np.testing.assert_allclose(found, [[5, 5], [5, 13], [5, (25 + 24**2) ** 0.5]], rtol=1e-6)


@pytest.mark.parametrize("way", SPLITS)
def test_all_ranks_skip_a_step_if_one_finds_an_infinite_gradient(way: str) -> None:
    gradient = np.ones((4, 4))
    gradient[3, 0] = np.inf

    def program() -> None:
        parameter = with_gradient(np.ones((4, 4)), gradient, *SPLITS[way])
        stepper, scaler = optim.SGD([parameter], lr=0.5), flow.amp.GradScaler(init_scale=4.0)
        if dist.get_rank() in parameter.placement.group:
            scaler.scale(flow.ones_like(parameter).sum())
            for wanted in (1.0, 0.5):
                scaler.step(stepper)
                scaler.update()
                assert scaler.get_scale() == 2.0
                assert (parameter.detach().numpy() == wanted).all()
                parameter.grad = flow.full_like(parameter.detach(), 2.0)

    dist.simulate(program, 4)


def test_stages_with_optimizers_of_their_own_keep_one_scale() -> None:
    def program() -> float:
        parameters = [
            with_gradient(np.ones(2), np.array([1.0, end]), [rank], [sbp.broadcast])
            for rank, end in enumerate((1.0, np.inf))
        ]
        scaler = flow.amp.GradScaler(init_scale=4.0)
        scaler.scale(flow.ones(1))
        for stepper in [optim.SGD([parameter], lr=0.5) for parameter in parameters]:
            scaler.step(stepper)
        scaler.update()
        return scaler.get_scale()

    # Rank 2 is outside of all placements.
    assert dist.simulate(program, 3) == [2.0, 2.0, 4.0]


@pytest.mark.parametrize("way", SPLITS)
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (optim.LAMB, {}),
        (optim.LAMB, {"weight_decay": 0.1, "do_bias_correction": False}),
        (optim.LAMB, {"weight_decay": 0.1, "adam_w_mode": False, "maximize": True}),
        (optim.Adafactor, {"weight_decay": 0.1}),
        (optim.Muon, {}),
    ],
)
def test_optimizers_of_whole_parameters(optimizer: type[optim.Optimizer], settings: dict[str, Any], way: str) -> None:
    values, gradient = np.random.default_rng(1).normal(size=(2, 4, 4))

    def steps(parameter: flow.Tensor, saved: Any = None) -> tuple[np.ndarray, Any]:
        lr = flow.tensor(0.1, dtype=flow.float64)
        stepper = optimizer([parameter], lr=lr, **settings)  # type: ignore[call-arg]
        if saved is not None:
            stepper.load_state_dict({**saved, "param_groups": stepper.state_dict()["param_groups"]})
        stepper.step()
        stepper.step()
        return parameter.detach().numpy(), stepper.state_dict()

    def program() -> None:
        local = nn.Parameter(flow.tensor(values))
        local.grad = flow.tensor(gradient)
        parameter = with_gradient(values, gradient, *SPLITS[way])
        if dist.get_rank() in parameter.placement.group:
            # Muon multiplies matrices of bfloat16.
            close = 2e-2 if optimizer is optim.Muon else 1e-12
            first, saved = steps(local)
            np.testing.assert_allclose(steps(parameter)[0], first, rtol=close, atol=close)
            np.testing.assert_allclose(steps(parameter, saved)[0], steps(local, saved)[0], rtol=close, atol=close)

    dist.simulate(program, 4)


@pytest.mark.parametrize("optimizer", [optim.Adafactor, optim.LAMB, optim.Muon, optim.AdamW])
def test_a_learning_rate_made_outside_of_the_ranks(optimizer: Any) -> None:
    lr, gradient = flow.tensor(0.1, dtype=flow.float64), np.random.default_rng(1).normal(size=(4, 4))

    def program() -> Any:
        parameter = with_gradient(np.ones((4, 4)), gradient, *SPLITS["split"])
        stepper = optimizer([parameter], lr=lr)
        for _ in range(3):
            stepper.step()
        return parameter.tolist()

    wanted = nn.Parameter(flow.ones(4, 4, dtype=flow.float64))
    wanted.grad = flow.tensor(gradient)
    stepper = optimizer([wanted], lr=0.1)
    for _ in range(3):
        stepper.step()
    for seed in range(3):
        np.testing.assert_allclose(dist.simulate(program, 4, seed)[0], wanted.tolist(), rtol=0.02)


@pytest.mark.parametrize("way", SPLITS)
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_searches_along_whole_parameters(way: str, search: str | None) -> None:
    values, wanted = np.random.default_rng(1).normal(size=(2, 4, 4))

    def minimum(parameter: flow.Tensor, target: flow.Tensor) -> np.ndarray:
        stepper = optim.LBFGS([parameter], lr=0.3, max_iter=6, line_search_fn=search)

        def closure() -> flow.Tensor:
            stepper.zero_grad()
            loss = ((parameter - target) ** 4).sum()
            loss.backward()
            return loss

        stepper.step(closure)
        stepper.step(closure)
        found: np.ndarray = parameter.detach().numpy()
        return found

    expected = minimum(nn.Parameter(flow.tensor(values)), flow.tensor(wanted))

    def program() -> None:
        parameter = nn.Parameter(spread(values, *SPLITS[way]))
        target = spread(wanted, *SPLITS[way])
        if dist.get_rank() in parameter.placement.group:
            np.testing.assert_allclose(minimum(parameter, target), expected, rtol=1e-8)

    dist.simulate(program, 4)


def test_a_gradient_that_is_spread_otherwise() -> None:
    def program() -> list[float]:
        where = flow.placement.all("cpu")
        parameter = nn.Parameter(flow.tensor([1.0, 2.0], placement=where, sbp=sbp.split(0)))
        parameter.grad = flow.tensor([30.0, 4.0], placement=where, sbp=sbp.broadcast)
        optim.SGD([parameter], lr=0.5).step()
        with pytest.raises(RuntimeError, match="a gradient for a global tensor must be a global tensor"):
            parameter.grad = flow.ones(2)
        values: list[float] = parameter.tolist()
        return values

    assert dist.simulate(program, 2) == [[-14.0, 0.0]] * 2


def test_data_of_a_global_tensor_stays_global() -> None:
    def program() -> None:
        where = flow.placement.all("cpu")
        spread = nn.Parameter(flow.ones(4, placement=where, sbp=sbp.split(0)))
        local = nn.Parameter(flow.ones(4))
        with pytest.raises(RuntimeError, match=r"data: a local tensor cannot be that of a global one, \[S\(0\)\]"):
            spread.data = local
        assert spread.is_global
        assert local.is_local
        spread.data = spread.detach() * 2
        local.data = spread
        assert local.is_global
        assert local.tolist() == spread.tolist() == [2.0] * 4

    dist.simulate(program, 2)


def test_a_partial_sum_is_no_parameter() -> None:
    def program() -> None:
        x = flow.ones(3, placement=flow.placement.all("cpu"), sbp=sbp.partial_sum).requires_grad_()
        (x * 2).sum().backward()
        assert x.grad is not None
        assert x.grad.sbp == (sbp.broadcast,)
        with pytest.raises(RuntimeError, match="a partial sum cannot be updated"):
            optim.SGD([x], lr=0.1).step()

    dist.simulate(program)


@pytest.mark.parametrize("tens", range(6))
def test_random_programs(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        random_programs.run(seed)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_in_which_a_rank_is_lost_or_frozen_or_wants_something_else(seed: int) -> None:
    random_programs.run_with_fault(seed)


def test_a_split_over_one_rank_needs_no_other_ranks() -> None:
    x = flow.arange(4.0, placement=flow.placement("cpu", [0]), sbp=sbp.split(0))
    assert [x.amax().item(), x.amin().item(), x.any().item(), x.all().item()] == [3.0, 0.0, True, False]
    assert flow.nn.utils.get_total_norm([x], 1.0).item() == 6.0


def test_the_ranks_of_a_placement_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        flow.placement("cpu", [0]).ranks[0] = 1
