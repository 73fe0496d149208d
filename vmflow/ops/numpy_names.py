"""numpy's names for arguments, ``axis`` and ``keepdims``, where PyTorch takes them for ``dim`` and ``keepdim``.

They are accepted where users call: by the functions of `vmflow` and the methods of tensors.  The ops themselves know
one name for each argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

_NAMES: Final = (("axis", "dim"), ("keepdims", "keepdim"))

NAMED: Final = (
    *("all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "argsort", "cat", "chunk", "concat", "concatenate"),
    *("count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "diff", "gather", "index_add", "index_copy"),
    *("index_fill", "index_select", "kthvalue", "log_softmax", "logcumsumexp", "logsumexp", "max", "mean", "median"),
    *("min", "mode", "nanmean", "nanmedian", "nanquantile", "nansum", "narrow", "norm", "prod", "quantile"),
    *("scatter", "scatter_add", "select", "softmax", "sort", "split", "squeeze", "stack", "std", "std_mean", "sum"),
    *("take_along_dim", "tensor_split", "topk", "unbind", "unflatten", "unsqueeze", "var", "var_mean"),
)


def with_numpy_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which may also be called with ``axis`` and ``keepdims``.

    Called so, it raises TypeError if an argument is given by both of its names.
    """

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for theirs, ours in _NAMES:
                if theirs in kwargs:
                    if ours in kwargs:
                        raise TypeError(f"{function.__name__}: {theirs} is another name of {ours}; give one of them")
                    kwargs[ours] = kwargs.pop(theirs)
        return function(*args, **kwargs)

    return named


def accept_numpy_names(functions: dict[str, Any], methods: type) -> None:
    """Let the functions and methods named here, of those that there are, take numpy's names too."""
    for name in NAMED:
        if name in functions:
            functions[name] = with_numpy_names(functions[name])
        if hasattr(methods, name):
            setattr(methods, name, with_numpy_names(getattr(methods, name)))
