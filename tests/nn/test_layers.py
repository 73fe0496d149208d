"""The layers: initial values, names, reprs, and results against PyTorch's."""

from __future__ import annotations

import copy
import inspect
import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients, instructions_issued
from vmflow import nn, optim

# name, arguments, shape of the input
LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (4, 3), {}, (2, 5, 4)),
    ("Linear", (4, 3), {"bias": False}, (4,)),
    ("Conv2d", (4, 6, 3), {}, (2, 4, 7, 6)),
    ("Conv2d", (4, 6, (3, 2)), {"stride": 2, "padding": (1, 0), "groups": 2, "bias": False}, (2, 4, 7, 6)),
    ("Conv2d", (4, 4, 3), {"padding": "same", "dilation": 2}, (1, 4, 7, 6)),
    ("MaxPool2d", (2,), {}, (2, 3, 6, 7)),
    ("MaxPool2d", ((3, 2),), {"stride": 1, "padding": 1, "ceil_mode": True}, (2, 3, 6, 7)),
    ("AvgPool2d", (2,), {}, (2, 3, 6, 7)),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, (2, 3, 6, 7)),
    ("AdaptiveAvgPool2d", (1,), {}, (2, 3, 6, 7)),
    ("AdaptiveAvgPool2d", ((2, None),), {}, (2, 3, 6, 7)),
    ("BatchNorm1d", (4,), {}, (5, 4)),
    ("BatchNorm1d", (4,), {"affine": False}, (5, 4, 2)),
    ("BatchNorm2d", (3,), {"eps": 1e-3, "momentum": 0.3}, (2, 3, 4, 4)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (2, 3, 4, 4)),
    ("BatchNorm2d", (3,), {"momentum": None}, (2, 3, 4, 4)),
    ("LayerNorm", (4,), {}, (2, 3, 4)),
    ("LayerNorm", ((3, 4),), {"bias": False}, (2, 3, 4)),
    ("LayerNorm", ((3, 4),), {"elementwise_affine": False}, (2, 3, 4)),
    ("Flatten", (), {}, (2, 3, 4)),
    ("Flatten", (0, 1), {}, (2, 3, 4)),
    ("Unflatten", (1, (3, 2)), {}, (2, 6)),
    ("Identity", (3,), {"anything": 1}, (2, 3)),
    ("ReLU", (), {}, (2, 3)),
    ("GELU", (), {}, (2, 3)),
    ("GELU", (), {"approximate": "tanh"}, (2, 3)),
    ("SiLU", (), {}, (2, 3)),
    ("Tanh", (), {}, (2, 3)),
    ("Sigmoid", (), {}, (2, 3)),
    ("Softmax", (1,), {}, (2, 3)),
    ("LogSoftmax", (0,), {}, (2, 3)),
    ("LeakyReLU", (0.2,), {}, (2, 3)),
    ("ELU", (0.7,), {}, (2, 3)),
    ("Softplus", (2, 0.5), {}, (2, 3)),
    ("Hardtanh", (-0.5, 0.25), {}, (2, 3)),
]
IDS = [f"{name}-{number}" for number, (name, *_) in enumerate(LAYERS)]


def pair_of_layers(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, Any]:
    """vmflow's layer and PyTorch's with the same values in float64, and PyTorch."""
    torch = pytest.importorskip("torch")
    ours = getattr(nn, name)(*arguments, **keywords).double()
    theirs = getattr(torch.nn, name)(*arguments, **keywords).double()
    generator = np.random.default_rng(5)
    state = theirs.state_dict()
    for value in state.values():
        if value.is_floating_point():
            value.copy_(torch.tensor(generator.uniform(0.5, 1.5, value.shape)))
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({key: flow.tensor(value.numpy()) for key, value in state.items()})
    return ours, theirs, torch


def check_results(ours: Any, theirs: Any, torch: Any, shape: tuple[int, ...], *, positive: bool = False) -> None:
    """Compare results, gradients and buffers of two layers, in training and in evaluation.

    Args:
        ours, theirs, torch: as `pair_of_layers` returns them.
        shape: of the input.
        positive: whether the input is, for layers that take roots.
    """
    generator = np.random.default_rng(6)
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        x = generator.normal(size=shape)
        if positive:
            x = abs(x) + 0.1
        mine: Any = flow.tensor(x, requires_grad=True)
        other = torch.tensor(x, requires_grad=True)
        result, expected = ours(mine), theirs(other)
        np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)
        weight = generator.normal(size=tuple(expected.shape))
        (result * flow.tensor(weight)).sum().backward()
        (expected * torch.tensor(weight)).sum().backward()
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-6, atol=1e-8)
        for (key, parameter), (_, reference) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            np.testing.assert_allclose(
                parameter.grad.numpy(), reference.grad.numpy(), rtol=1e-6, atol=1e-8, err_msg=key
            )
        for key, buffer in theirs.state_dict().items():
            np.testing.assert_allclose(ours.state_dict()[key].numpy(), buffer.numpy(), rtol=1e-7, err_msg=key)


@pytest.mark.parametrize(("name", "arguments", "keywords", "shape"), LAYERS, ids=IDS)
def test_results_are_those_of_pytorch(
    name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], shape: tuple[int, ...]
) -> None:
    check_results(*pair_of_layers(name, arguments, keywords), shape)


@pytest.mark.parametrize(("name", "arguments", "keywords", "shape"), LAYERS, ids=IDS)
def test_reprs_are_those_of_pytorch(
    name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], shape: tuple[int, ...]
) -> None:
    ours, theirs, _ = pair_of_layers(name, arguments, keywords)
    assert repr(ours) == repr(theirs)


def test_more_reprs() -> None:
    torch = pytest.importorskip("torch")

    def build(lib: Any) -> list[Any]:
        return [
            lib.Conv2d(4, 4, 3, dilation=2, bias=False),
            lib.Embedding(5, 3, padding_idx=-1),
            lib.Embedding(5, 3, max_norm=1.0, norm_type=1.0, scale_grad_by_freq=True),
            lib.Dropout(0.25, inplace=True),
            lib.ReLU(inplace=True),
            lib.LeakyReLU(inplace=True),
            lib.Softmax(),
            lib.CrossEntropyLoss(),
            lib.HuberLoss(),
            lib.KLDivLoss(),
        ]

    for ours, theirs in zip(build(nn), build(torch.nn), strict=True):
        assert repr(ours) == repr(theirs)


def test_state_dict_names_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def build(lib: Any) -> Any:
        return lib.Sequential(lib.Conv2d(1, 2, 3), lib.BatchNorm2d(2), lib.Linear(4, 3))

    ours, theirs = build(nn).state_dict(), build(torch.nn).state_dict()
    assert list(ours) == list(theirs)
    assert [tuple(our.shape) for our in ours.values()] == [tuple(their.shape) for their in theirs.values()]
    assert [our.dtype.name for our in ours.values()] == [
        str(their.dtype).removeprefix("torch.") for their in theirs.values()
    ]


# Losses

LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("CrossEntropyLoss", {}),
    ("CrossEntropyLoss", {"weight": [0.5, 1.0, 2.0], "ignore_index": 1, "label_smoothing": 0.1}),
    ("NLLLoss", {"weight": [0.5, 1.0, 2.0], "reduction": "sum"}),
    ("MSELoss", {}),
    ("L1Loss", {"reduction": "none"}),
    ("SmoothL1Loss", {"beta": 0.3}),
    ("HuberLoss", {"delta": 0.3, "reduction": "sum"}),
    ("BCELoss", {"weight": [0.5, 1.0, 2.0]}),
    ("BCEWithLogitsLoss", {"pos_weight": [0.5, 1.0, 2.0], "reduction": "none"}),
    ("KLDivLoss", {"reduction": "batchmean", "log_target": True}),
]


@pytest.mark.parametrize(("name", "settings"), LOSSES)
def test_losses_are_those_of_pytorch(name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(3)
    x = generator.uniform(0.1, 0.9, (4, 3))
    target: Any = generator.uniform(0.1, 0.9, (4, 3))
    if name in ("CrossEntropyLoss", "NLLLoss"):
        target = np.array([0, 2, 1, 2])
    found = []
    for lib in (flow, torch):
        given = {key: lib.tensor(value) if isinstance(value, list) else value for key, value in settings.items()}
        loss = getattr(lib.nn, name)(**given).double()
        prediction = lib.tensor(x)
        prediction.requires_grad_()
        result = loss(prediction, lib.tensor(target))
        result.sum().backward()
        found.append((result.detach().numpy(), prediction.grad.numpy(), list(loss.state_dict())))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6, atol=1e-9)
    assert found[0][2] == found[1][2]


def test_a_loss_moves_with_its_weight() -> None:
    loss = nn.CrossEntropyLoss(flow.ones(3))
    assert loss.double().weight.dtype is flow.float64
    loss.weight = None
    assert loss(flow.zeros(2, 3), flow.tensor([0, 1])).item() == pytest.approx(math.log(3))


def test_settings_may_be_changed_between_calls() -> None:
    layer = nn.LeakyReLU(0.5)
    x = flow.tensor([-2.0])
    assert layer(x).item() == -1
    layer.negative_slope = 0.25
    assert layer(x).item() == -0.5


# Initial values


def test_layers_and_losses_take_inputs_by_name() -> None:
    scores, target = flow.tensor([[1.0, -2.0]]), flow.tensor([1])
    loss = nn.CrossEntropyLoss(reduction="sum")
    assert loss(input=scores, target=target).item() == loss(scores, target).item()
    assert nn.GaussianNLLLoss()(scores, scores, var=flow.ones(1, 2)).item() == 0
    assert nn.ReLU()(input=scores).tolist() == [[1.0, 0.0]]
    with pytest.raises(TypeError, match="multiple values for keyword argument 'reduction'"):
        loss(scores, target, reduction="mean")


def test_linear_and_convolution_begin_within_their_bound() -> None:
    for layer, fan_in in ((nn.Linear(50, 40), 50), (nn.Conv2d(8, 40, (3, 2), groups=2), 24)):
        bound = 1 / math.sqrt(fan_in)
        for parameter in (layer.weight, layer.bias):
            values = parameter.detach().numpy()
            assert np.abs(values).max() <= bound
            assert np.abs(values).max() > 0.8 * bound
        np.testing.assert_allclose(layer.weight.detach().numpy().std(), bound / math.sqrt(3), rtol=0.1)


def test_initial_values_follow_the_seed() -> None:
    flow.manual_seed(3)
    first = nn.Linear(3, 3)
    second = nn.Linear(3, 3)
    assert first.weight.tolist() != second.weight.tolist()
    flow.manual_seed(3)
    assert nn.Linear(3, 3).weight.tolist() == first.weight.tolist()


def test_resetting_draws_anew() -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight.tolist()
    layer.reset_parameters()
    assert layer.weight.tolist() != before
    norm = nn.BatchNorm1d(2)
    norm(flow.randn(4, 2))
    norm.reset_parameters()
    assert norm.running_mean.tolist() == [0, 0]
    assert norm.running_var.tolist() == [1, 1]
    assert norm.num_batches_tracked.item() == 0


def test_layers_of_size_zero_can_be_made() -> None:
    assert tuple(nn.Linear(0, 3)(flow.zeros(2, 0)).shape) == (2, 3)
    assert tuple(nn.Linear(3, 0)(flow.zeros(2, 3)).shape) == (2, 0)


def test_dtypes() -> None:
    for layer in (
        nn.Linear(2, 2, dtype=flow.float64),
        nn.Conv2d(1, 1, 1, dtype=flow.float64),
        nn.Embedding(2, 2, dtype=flow.float64),
        nn.LayerNorm(2, dtype=flow.float64),
        nn.BatchNorm2d(2, dtype=flow.float64, device="cpu"),
    ):
        dtypes = {key: value.dtype for key, value in layer.state_dict().items()}
        assert dtypes.pop("num_batches_tracked", flow.int64) is flow.int64
        assert set(dtypes.values()) == {flow.float64}


# Layers with a behaviour of their own


def test_gradients_of_a_whole_model() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 2),
        nn.BatchNorm2d(2),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(2),
        nn.Linear(2, 1),
    ).double()
    x = np.random.default_rng(0).normal(size=(3, 1, 3, 3))
    check_gradients(model, x, rtol=1e-4, atol=1e-6)


def test_dropout_follows_the_mode() -> None:
    layer = nn.Dropout(0.25)
    x = flow.ones(100, 100)
    values = layer(x).numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.03
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), x.numpy())
    with pytest.raises(ValueError, match="probability"):
        nn.Dropout(1.5)


def test_batch_norm_by_hand() -> None:
    layer = nn.BatchNorm1d(1, momentum=0.5)
    y = layer(flow.tensor([[1.0], [3.0]]))
    np.testing.assert_allclose(y.detach().numpy(), [[-1], [1]], atol=1e-4)
    assert layer.running_mean.item() == 1
    assert layer.running_var.item() == 1.5
    layer.eval()
    assert layer(flow.tensor([[1.0]])).item() == 0
    assert layer.num_batches_tracked.item() == 1


async def test_batch_norm_that_averages_does_not_wait() -> None:
    layer = nn.BatchNorm1d(1, momentum=None)
    await flow.synchronize()
    with instructions_issued():
        for value in (1.0, 2.0, 6.0):
            layer(flow.tensor([[value - 1], [value + 1]]))
        assert not layer.running_mean.is_ready()
    assert (await layer.running_mean).item() == pytest.approx(3)
    assert (await layer.running_var).item() == pytest.approx(2)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.BatchNorm2d])
def test_batch_norm_refuses_other_dimensions(layer: Any) -> None:
    with pytest.raises(ValueError, match=rf"{layer.__name__}: expected .* dimensions"):
        layer(3)(flow.zeros(2, 3, 1, 1, 1))


def test_embedding() -> None:
    layer = nn.Embedding(5, 3, padding_idx=-1)
    assert layer.padding_idx == 4
    assert layer.weight[4].tolist() == [0, 0, 0]
    assert layer.weight[3].tolist() != [0, 0, 0]
    indices = flow.tensor([[1, 4], [1, 0]])
    result = layer(indices)
    assert tuple(result.shape) == (2, 2, 3)
    np.testing.assert_array_equal(result.detach().numpy(), layer.weight.detach().numpy()[indices.numpy()])
    result.sum().backward()
    assert layer.weight.grad is not None
    np.testing.assert_array_equal(layer.weight.grad.numpy()[:, 0], [1, 2, 0, 0, 0])
    with pytest.raises(ValueError, match="padding_idx 5 is out of range for 5 rows"):
        nn.Embedding(5, 3, padding_idx=5)
    with pytest.raises(ValueError, match="sparse"):
        nn.Embedding(5, 3, sparse=True)


def test_embedding_settings_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    table = np.random.default_rng(0).normal(size=(4, 3)) * 3
    found = []
    for lib in (flow, torch):
        layer = lib.nn.Embedding.from_pretrained(
            lib.tensor(table), freeze=False, padding_idx=2, max_norm=2.0, norm_type=1.0, scale_grad_by_freq=True
        )
        result = layer(lib.tensor([[0, 1, 1], [2, 1, 2]]))
        result.sum().backward()
        found.append([tensor.detach().numpy() for tensor in (result, layer.weight, layer.weight.grad)])
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)


def test_embedding_from_a_table() -> None:
    table = flow.arange(6, dtype=flow.float32).reshape(3, 2)
    layer = nn.Embedding.from_pretrained(table, padding_idx=-3)
    assert layer(flow.tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    assert not layer.weight.requires_grad
    assert layer.padding_idx == 0
    assert repr(layer) == "Embedding(3, 2, padding_idx=0)"
    table.add_(1)
    assert layer(flow.tensor([2])).tolist() == [[5, 6]]
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad
    with pytest.raises(ValueError, match="expected a matrix"):
        nn.Embedding.from_pretrained(flow.zeros(3))
    with pytest.raises(ValueError, match="out of range"):
        nn.Embedding.from_pretrained(table, padding_idx=3)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"groups": 2}, "cannot be split into 2 groups"),
        ({"groups": 0}, "into 0 groups"),
        ({"padding_mode": "mirror"}, "padding_mode must be one of zeros, reflect"),
        ({"padding": "full"}, "'same' or 'valid'"),
        ({"padding": "same", "stride": 2}, "stride of 1"),
    ],
)
def test_convolutions_that_make_no_sense(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        nn.Conv2d(3, 4, 3, **arguments)


def test_max_pool_with_indices() -> None:
    values, indices = nn.MaxPool2d(2, return_indices=True)(flow.arange(16, dtype=flow.float32).reshape(1, 4, 4))
    assert values.tolist() == [[[5, 7], [13, 15]]]
    assert indices.tolist() == [[[5, 7], [13, 15]]]


def test_hardtanh_needs_an_interval() -> None:
    with pytest.raises(ValueError, match="not below"):
        nn.Hardtanh(1, 1)


async def test_training_a_classifier_in_a_coroutine() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 2)).astype(np.float32)
    labels = flow.tensor((x[:, 0] * x[:, 1] > 0).astype(np.int64))
    inputs = flow.tensor(x)
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = optim.AdamW(model.parameters(), lr=0.03)
    loss_function = nn.CrossEntropyLoss()
    for _ in range(80):
        optimizer.zero_grad()
        loss = loss_function(model(inputs), labels)
        loss.backward()
        optimizer.step()
        await loss
    model.eval()
    with flow.no_grad():
        guesses = await model(inputs).argmax(1)
    assert np.mean(guesses.numpy() == labels.numpy()) > 0.95


def test_a_copied_model_goes_its_own_way() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    twin = copy.deepcopy(model)
    model(flow.randn(4, 2))
    assert twin[1].num_batches_tracked.item() == 0
    assert model[1].num_batches_tracked.item() == 1


def test_an_embedding_with_a_table_that_is_given() -> None:
    table = flow.rand(4, 3)
    layer = nn.Embedding(4, 3, padding_idx=-1, _weight=table, _freeze=True)
    assert layer.padding_idx == 3
    assert not layer.weight.requires_grad
    table.zero_()
    assert layer.weight.sum().item() == 0  # which shares its memory
    with pytest.raises(ValueError, match=r"Embedding: a table of shape \[4, 3\] is not one of 5 vectors of length 3"):
        nn.Embedding(5, 3, _weight=table)
    with pytest.raises(TypeError, match="expected tensors, got list"):
        nn.Embedding(1, 1, _weight=[[1.0]])  # type: ignore[arg-type]
    state = flow.get_rng_state().tolist()
    assert nn.Embedding.from_pretrained(table, padding_idx=1).padding_idx == 1
    assert flow.get_rng_state().tolist() == state


def test_old_names_of_the_limits_of_hardtanh() -> None:
    with pytest.warns(FutureWarning, match="m.._value is the old name of m.._val") as told:
        layer = nn.Hardtanh(min_value=-3.0, max_value=2.0)
    assert (layer.min_val, layer.max_val) == (-3, 2)
    assert {value.filename for value in told} == {__file__}
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="not below"):
        nn.Hardtanh(max_value=-1.0)


def test_layers_of_a_rank_document_the_arguments_of_their_base() -> None:
    doc = inspect.getdoc(nn.MaxPool2d)
    assert doc is not None
    sections = [part.partition(":")[0] for part in doc.split("\n\n")]
    assert sections[0] == "The largest element of each window of images."
    assert sections[2:] == ["Shape", "Args", "Raises", "Example"]


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.Softmax2d(), "Softmax2d"),
        (nn.Unflatten(0, (1, 1)), "Unflatten"),
        (nn.Embedding.from_pretrained, "from_pretrained"),
        (nn.EmbeddingBag.from_pretrained, "from_pretrained"),
        (nn.QatLinear(2, 2).eval(), "QatLinear"),
        (nn.QatConv1d(2, 2, 1).eval(), "QatConv1d"),
        (partial(nn.MovingAverageMinMaxObserver(), current_train_step=0), "MovingAverageMinMaxObserver"),
        (partial(nn.MovingAverageMinMaxObserver(True), current_train_step=0), "MovingAverageMinMaxObserver"),
        (partial(nn.Transformer(2, 1, 1, 1, 2), tgt=flow.ones(1, 2)), "Transformer"),
        (partial(nn.Transformer(2, 1, 1, 1, 2), flow.ones(1, 2)), "Transformer"),
        (nn.LazyLinear(2), "LazyLinear"),
        *[(getattr(nn, name)(2, 1), name) for name in ("LazyConv1d", "LazyConv2d", "LazyConv3d")],
        (nn.LazyConvTranspose2d(2, 1), "LazyConvTranspose2d"),
        *[(getattr(nn, name)(), name) for name in ("LazyBatchNorm1d", "LazyBatchNorm2d", "LazyInstanceNorm1d")],
    ],
)
def test_anything_but_a_tensor_is_refused(layer: Any, name: str) -> None:
    for given, described in (([1.0], "list"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"^{name}: expected tensors, got .*{described}"):
            layer(given)
