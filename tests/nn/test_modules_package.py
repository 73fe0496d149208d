"""``nn.modules``: PyTorch's module names for the layers."""

from __future__ import annotations

import importlib
import sys

import pytest

from vmflow import nn

pytestmark = pytest.mark.host

torch = pytest.importorskip("torch")

# The public submodules: which private ones PyTorch has depends on its version and on the ones that were imported.
NAMES = [
    name for name in vars(torch.nn.modules) if f"torch.nn.modules.{name}" in sys.modules and not name.startswith("_")
]


def test_submodules_have_the_classes_of_pytorchs() -> None:
    """As far as `nn` has a class of that name."""
    for name in NAMES:
        theirs = getattr(torch.nn.modules, name)
        classes = [key for key, value in vars(theirs).items() if getattr(value, "__module__", "") == theirs.__name__]
        there = [key for key in classes if hasattr(nn, key)]
        if not there:
            continue
        ours = importlib.import_module(f"vmflow.nn.modules.{name}")
        assert ours is getattr(nn.modules, name)
        for key in there:
            assert getattr(ours, key) is getattr(nn, key), key
        assert set(there) <= set(dir(ours)), name


@pytest.mark.parametrize(
    ("base", "layers"),
    [
        ("batchnorm._BatchNorm", ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]),
        ("batchnorm._NormBase", ["BatchNorm2d", "InstanceNorm3d"]),
        ("instancenorm._InstanceNorm", ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]),
        ("conv._ConvNd", ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d"]),
        ("conv._ConvTransposeNd", ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]),
        ("rnn.RNNBase", ["RNN", "LSTM", "GRU"]),
        ("rnn.RNNCellBase", ["RNNCell", "LSTMCell", "GRUCell"]),
        ("dropout._DropoutNd", ["Dropout", "Dropout2d", "AlphaDropout"]),
        ("loss._Loss", ["MSELoss", "CrossEntropyLoss"]),
        ("pooling._MaxPoolNd", ["MaxPool1d", "MaxPool2d"]),
        ("module.Module", ["Linear"]),
    ],
)
def test_bases_are_those_of_the_layers(base: str, layers: list[str]) -> None:
    module, name = base.split(".")
    kind = getattr(getattr(nn.modules, module), name)
    for layer in layers:
        assert issubclass(getattr(nn, layer), kind)
        assert issubclass(getattr(torch.nn, layer), getattr(getattr(torch.nn.modules, module), name))


def test_base_classes_exclude_other_layers() -> None:
    assert not issubclass(nn.InstanceNorm1d, nn.modules.batchnorm._BatchNorm)
    assert not issubclass(nn.Linear, nn.modules.conv._ConvNd)
    assert not issubclass(nn.Conv2d, nn.modules.conv._ConvTransposeNd)


def test_the_package_has_the_classes_too() -> None:
    assert nn.modules.Conv2d is nn.Conv2d
    with pytest.raises(AttributeError, match=r"'vmflow.nn.modules' has no attribute 'Nothing'"):
        nn.modules.Nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"'vmflow.nn.modules.conv' has no attribute 'Nothing'"):
        nn.modules.conv.Nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("vmflow.nn.modules.nothing")


def test_tuples_of_one_value() -> None:
    for lib in (nn, torch.nn):
        utils = lib.modules.utils
        assert [utils._single(3), utils._pair(3), utils._triple((1, 2, 3)), utils._quadruple("ab")] == [
            (3,),
            (3, 3),
            (1, 2, 3),
            ("a", "b"),
        ]
        assert utils._ntuple(2)([5]) == (5,)
        assert utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
