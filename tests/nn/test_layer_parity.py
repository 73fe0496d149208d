"""The layers of activations, losses, distances and tables against PyTorch's: signatures, reprs, values, gradients."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import nn

Array = NDArray[Any]
torch = pytest.importorskip("torch")


def numbers(seed: int, *shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return np.asarray(np.random.default_rng(seed).uniform(low, high, shape))


X, Y, Z = numbers(0, 3, 4), numbers(1, 3, 4), numbers(2, 3, 4, low=0.2)
SIGNS = np.array([[1.0, -1, 1, -1], [-1, -1, 1, 1], [1, 1, 1, -1]])
CLASSES = np.array([1, 3, 0])
BITS = (SIGNS + 1) / 2
LOGS = np.log(numbers(3, 5, 2, 3, low=0.1))
CTC = (LOGS, np.array([[1, 2], [2, 2]]), np.array([5, 4]), np.array([2, 1]))
WORDS = np.array([[1, 2, 0], [3, 3, 1]])

# name, arguments, keywords, inputs
LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[Array, ...]]] = [
    ("ReLU6", (), {}, (X,)),
    ("ReLU6", (), {"inplace": False}, (X * 5,)),
    ("Hardsigmoid", (), {}, (X,)),
    ("Hardswish", (), {}, (X * 2,)),
    ("Mish", (), {}, (X,)),
    ("SELU", (), {}, (X,)),
    ("CELU", (), {}, (X,)),
    ("CELU", (0.5,), {}, (X,)),
    ("GLU", (), {}, (X,)),
    ("GLU", (1,), {}, (X,)),
    ("LogSigmoid", (), {}, (X,)),
    ("Softsign", (), {}, (X,)),
    ("Tanhshrink", (), {}, (X,)),
    ("Softmin", (1,), {}, (X,)),
    ("Softmax2d", (), {}, (X.reshape(1, 3, 2, 2),)),
    ("Softmax2d", (), {}, (X.reshape(3, 2, 2),)),
    ("Threshold", (0.5, -1.0), {}, (X,)),
    ("Hardshrink", (), {}, (X,)),
    ("Softshrink", (0.7,), {}, (X,)),
    ("PReLU", (), {}, (X,)),
    ("PReLU", (4,), {"init": 0.1}, (X,)),
    ("PoissonNLLLoss", (), {}, (X, Z)),
    ("PoissonNLLLoss", (False, True), {"reduction": "sum"}, (Z, Z)),
    ("GaussianNLLLoss", (), {}, (X, Y, Z)),
    ("GaussianNLLLoss", (), {"full": True, "eps": 0.5, "reduction": "none"}, (X, Y, Z)),
    ("CosineEmbeddingLoss", (), {}, (X, Y, SIGNS[:, 0])),
    ("CosineEmbeddingLoss", (0.2,), {"reduction": "none"}, (X, Y, SIGNS[:, 0])),
    ("MarginRankingLoss", (), {}, (X, Y, SIGNS)),
    ("MarginRankingLoss", (0.3,), {"reduction": "none"}, (X, Y, SIGNS)),
    ("HingeEmbeddingLoss", (1.5,), {}, (Z, SIGNS)),
    ("SoftMarginLoss", (), {"reduction": "sum"}, (X, SIGNS)),
    ("TripletMarginLoss", (2.0, 3), {"swap": True}, (X, Y, Z)),
    ("TripletMarginWithDistanceLoss", (), {"margin": 2.0}, (X, Y, Z)),
    ("MultiMarginLoss", (2, 0.5), {"weight": np.array([0.5, 1.0, 2.0, 1.5])}, (X, CLASSES)),
    ("MultiLabelMarginLoss", (), {}, (X, np.array([[1, -1, 0, 0], [0, 3, 2, -1], [-1, 0, 0, 0]]))),
    ("MultiLabelSoftMarginLoss", (), {"weight": np.array([0.5, 1.0, 2.0, 1.5])}, (X, BITS)),
    ("CTCLoss", (), {}, CTC),
    ("CTCLoss", (0, "sum", True), {}, CTC),
    ("CosineSimilarity", (), {}, (X, Y)),
    ("CosineSimilarity", (0, 1e-3), {}, (X, Y)),
    ("PairwiseDistance", (), {}, (X, Y)),
    ("PairwiseDistance", (1.0,), {"keepdim": True}, (X, Y)),
    ("Bilinear", (4, 4, 2), {}, (X, Y)),
    ("Bilinear", (4, 4, 2), {"bias": False}, (X, Y)),
    ("EmbeddingBag", (5, 3), {}, (WORDS,)),
    ("EmbeddingBag", (5, 3), {"mode": "max", "padding_idx": -2}, (WORDS,)),
    ("EmbeddingBag", (5, 3), {"mode": "sum", "scale_grad_by_freq": False}, (WORDS[0], np.array([0, 1]))),
    ("Embedding", (5, 3), {"padding_idx": 1}, (WORDS,)),
    ("Embedding", (5, 3), {"scale_grad_by_freq": True}, (WORDS,)),
    ("Embedding", (5, 3), {"max_norm": 1.0}, (WORDS,)),
]
IDS = [f"{name}-{number}" for number, (name, *_) in enumerate(LAYERS)]


def build(lib: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    given = {
        key: lib.tensor(keyword) if isinstance(keyword, np.ndarray) else keyword for key, keyword in keywords.items()
    }
    return getattr(lib.nn, name)(*arguments, **given).double()


@pytest.mark.parametrize(("name", "arguments", "keywords", "inputs"), LAYERS, ids=IDS)
def test_results_and_reprs_are_those_of_pytorch(
    name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], inputs: tuple[Array, ...]
) -> None:
    ours, theirs = build(flow, name, arguments, keywords), build(torch, name, arguments, keywords)
    assert repr(ours) == repr(theirs)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({key: flow.tensor(value.numpy()) for key, value in state.items()})
    found = []
    for lib, layer in ((flow, ours), (torch, theirs)):
        first = lib.tensor(inputs[0])
        if inputs[0].dtype.kind == "f":
            first.requires_grad_()
        result = layer(first, *[lib.tensor(operand) for operand in inputs[1:]])
        values = np.array(result.detach().numpy())
        (result * lib.tensor(numbers(9, *result.shape))).sum().backward()
        gradients = [parameter.grad.numpy() for parameter in (first, *layer.parameters()) if parameter.requires_grad]
        found.append([values, *gradients])
    # PyTorch computes two of the activations with constants of single precision.
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "name", sorted({layer[0] for layer in LAYERS} | {"RReLU", "AlphaDropout", "FeatureAlphaDropout"})
)
def test_arguments_are_those_of_pytorch(name: str) -> None:
    # Data formats are OneFlow's, by keyword only.
    skipped = ("args", "kwargs", "settings", "data_format")
    wanted = inspect.signature(getattr(torch.nn, name)).parameters.values()
    found = inspect.signature(getattr(nn, name)).parameters.values()
    expected = [(value.name, value.default) for value in wanted if value.name not in skipped]
    assert [(value.name, value.default) for value in found if value.name not in skipped] == expected


@pytest.mark.parametrize("name", ["Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"])
def test_dropouts(name: str) -> None:
    layer = getattr(nn, name)(0.25, inplace=True)
    assert repr(layer) == repr(getattr(torch.nn, name)(0.25, inplace=True))
    x = flow.ones(50, 8, 2, 1, 1) if name != "Dropout1d" else flow.ones(50, 8, 2)
    if name == "Dropout2d":
        x = x[..., 0]
    assert layer.eval()(x) is x
    assert (x == 1).all().item()
    layer.train()(x)
    assert not (x == 1).any().item()
    with pytest.raises(ValueError, match=f"{name}: the probability must be within"):
        getattr(nn, name)(2.0)


def test_rrelu_is_random_in_training_only() -> None:
    layer = nn.RReLU(0.2, 0.4)
    assert repr(layer) == repr(torch.nn.RReLU(0.2, 0.4))
    x = flow.full((100,), -1.0)
    assert len(set(layer(x).tolist())) > 50
    np.testing.assert_allclose(layer.eval()(x).numpy(), -0.3, rtol=1e-6)


@pytest.mark.parametrize("name", ["ReLU6", "Mish", "SELU", "CELU", "Hardswish", "Hardsigmoid", "RReLU"])
def test_activations_in_place(name: str) -> None:
    layer = getattr(nn, name)(inplace=True).eval()
    assert repr(layer) == repr(getattr(torch.nn, name)(inplace=True))
    x = flow.tensor(X)
    expected = getattr(nn, name)().eval()(x).tolist()
    assert layer(x) is x
    assert x.tolist() == expected


def test_layers_of_oneflow() -> None:
    x = flow.tensor(X)
    assert nn.QuickGELU()(x).tolist() == nn.functional.quick_gelu(x).tolist()
    assert nn.SquareReLU()(x).tolist() == nn.functional.square_relu(x).tolist()
    label = flow.tensor(CLASSES)
    loss = nn.CombinedMarginLoss(1.0, 0.0, 0.35)
    difference = (x - loss(x, label)).numpy()
    np.testing.assert_allclose(difference[np.arange(3), CLASSES], 0.35)
    assert np.count_nonzero(difference) == 3


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: nn.TripletMarginLoss(0.0), "margin must be positive"),
        (lambda: nn.TripletMarginWithDistanceLoss(margin=-1.0), "margin must be positive"),
        (lambda: nn.MultiMarginLoss(3), "p must be 1 or 2"),
        (lambda: nn.Bilinear(0, 1, 1), "must be positive"),
        (lambda: nn.EmbeddingBag(3, 2, sparse=True), "sparse gradients are not supported"),
        (lambda: nn.EmbeddingBag(3, 2, mode="median"), "mode must be one of"),
        (lambda: nn.EmbeddingBag(3, 2, padding_idx=3), "names no row"),
        (lambda: nn.EmbeddingBag(3, 2, _weight=flow.ones(2, 3)), "is not one of 3 vectors of length 2"),
        (lambda: nn.EmbeddingBag.from_pretrained(flow.ones(2)), "expected a matrix"),
        (lambda: nn.Softmax2d()(flow.ones(2)), "Softmax2d: expected"),
    ],
)
def test_arguments_that_are_refused(call: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        call()


def test_a_bag_made_of_a_table() -> None:
    table = flow.tensor([[1.0, 2.0], [3.0, 4.0]])
    bag = nn.EmbeddingBag.from_pretrained(table, mode="sum")
    assert not bag.weight.requires_grad
    assert bag(flow.tensor([[0, 1]])).tolist() == [[4.0, 6.0]]
    assert nn.EmbeddingBag.from_pretrained(table, freeze=False).weight.requires_grad


def test_resetting_restores_initial_values() -> None:
    prelu = nn.PReLU(2, 0.5)
    with flow.no_grad():
        prelu.weight.fill_(3)
    prelu.reset_parameters()
    assert prelu.weight.tolist() == [0.5, 0.5]
    bag = nn.EmbeddingBag(3, 2, padding_idx=1)
    assert bag.weight[1].tolist() == [0.0, 0.0]
    layer = nn.Bilinear(4, 3, 2)
    before = layer.weight.tolist()
    layer.reset_parameters()
    assert layer.weight.tolist() != before
    assert np.abs(layer.weight.detach().numpy()).max() <= 0.5
