"""``vmflow.nn.modules``: layers under the names of PyTorch's modules, such as ``nn.modules.conv.Conv2d``.

Each submodule looks a name up, when a program reads it, in the modules of `vmflow.nn` that may define the name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from vmflow import nn

# For each submodule of PyTorch's ``nn.modules``, the modules of `vmflow.nn` that define its names.
_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "activation": ("activation_layers", "attention"),
    "adaptive": ("adaptive_softmax",),
    "batchnorm": ("normalization_layers", "lazy_layers"),
    "channelshuffle": ("resampling_layers",),
    "container": ("containers",),
    "conv": ("convolution_layers", "lazy_layers"),
    "distance": ("distance_layers",),
    "dropout": ("dropout_layers",),
    "flatten": ("function_layers",),
    "fold": ("convolution_layers",),
    "instancenorm": ("normalization_layers", "lazy_layers"),
    "lazy": ("lazy_layers",),
    "linear": ("layers", "function_layers", "lazy_layers"),
    "loss": ("loss_layers", "margin_loss_layers"),
    "module": ("module", "hooks", "parameter", "state"),
    "normalization": ("normalization_layers",),
    "padding": ("padding_layers",),
    "pixelshuffle": ("resampling_layers",),
    "pooling": ("pooling_layers",),
    "rnn": ("recurrent",),
    "sparse": ("layers",),
    "transformer": ("transformer",),
    "upsampling": ("resampling_layers",),
    "utils": (),
}

# PyTorch's private names, mostly of base classes that programs pass to `isinstance`, and vmflow's names of the same.
_OTHER_NAMES: Final[dict[str, str]] = {
    "_AdaptiveAvgPoolNd": "_AdaptiveAvgPool",
    "_AdaptiveMaxPoolNd": "_AdaptiveMaxPool",
    "_AvgPoolNd": "_AvgPool",
    "_ConvNd": "_Convolution",
    "_ConvTransposeNd": "_Transposed",
    "_DropoutNd": "_Dropout",
    "_IncompatibleKeys": "IncompatibleKeys",
    "_LPPoolNd": "_LPPool",
    "_MaxPoolNd": "_MaxPool",
    "_MaxUnpoolNd": "_MaxUnpool",
    "_NormBase": "_ChannelNorm",
}


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """Return a function `name` that repeats a single value `n` times as a tuple, and turns an iterable into a tuple."""

    def parse(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * n

    parse.__name__ = parse.__qualname__ = name
    return parse


# The functions of `nn.modules.utils`.
_UTILS: Final[dict[str, Callable[..., Any]]] = {
    "_ntuple": _ntuple,
    "_single": _ntuple(1, "_single"),
    "_pair": _ntuple(2, "_pair"),
    "_triple": _ntuple(3, "_triple"),
    "_quadruple": _ntuple(4, "_quadruple"),
    "_reverse_repeat_tuple": lambda t, n: tuple([value for value in reversed(t) for _ in range(n)]),
}


class _Submodule(ModuleType):
    """A module object for one of PyTorch's ``nn.modules``; it looks names up in the modules that `_SOURCES` lists."""

    def __getattr__(self, name: str) -> Any:
        short = self.__name__.rpartition(".")[2]
        for source in [] if name.startswith("__") else _SOURCES[short]:
            module = import_module(f"vmflow.nn.{source}")
            for key in (name, _OTHER_NAMES.get(name, name)):
                if key in vars(module):
                    return vars(module)[key]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        short = self.__name__.rpartition(".")[2]
        names = {
            name
            for source in _SOURCES[short]
            for name, value in vars(import_module(f"vmflow.nn.{source}")).items()
            if getattr(value, "__module__", "") == f"vmflow.nn.{source}" and not name.startswith("_")
        }
        return sorted({*names, *vars(self)})


for _name in _SOURCES:
    _submodule = _Submodule(f"{__name__}.{_name}", f"The names of ``torch.nn.modules.{_name}``.")
    globals()[_name] = _submodule
    # In `sys.modules` for ``import vmflow.nn.modules.conv``, because there is no such file.
    sys.modules[_submodule.__name__] = _submodule
vars(sys.modules[f"{__name__}.utils"]).update(_UTILS)


def __getattr__(name: str) -> Any:
    # PyTorch has the classes of layers in ``nn.modules`` itself, too.
    kind = None if name.startswith("_") else getattr(nn, name, None)
    if isinstance(kind, type):
        return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
