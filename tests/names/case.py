"""`Case`: a call of a name, and its oracle."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

Call = Callable[[Any], Any]


class Case(NamedTuple):
    """A call that is made with the library as its argument, such as ``lambda t: t.ones(2).silu()``.

    Attributes:
        name: as users write it, behind the name of the library: "Tensor.silu", "nn.utils.prune.l1_unstructured".
        call: returns tensors, arrays, numbers, strings or None, or lists, tuples and dicts of them.
        expected: what it returns, for names that PyTorch does not have; None to ask PyTorch.
        tolerance: relative and absolute, for floats.
    """

    name: str
    call: Call
    expected: Callable[[], Any] | None = None
    tolerance: float = 1e-5

    def check(self, library: ModuleType, oracle: ModuleType | None) -> None:
        """Compare the results of both libraries, or that of `library` with what is expected."""
        found = plain(self.call(library))
        if self.expected is not None:
            wanted = plain(self.expected())
        else:
            assert oracle is not None
            wanted = plain(self.call(oracle))
        compare(found, wanted, self.tolerance, self.name)


def plain(value: Any) -> Any:
    """The value without what belongs to a library: tensors as arrays of numpy, sizes as tuples."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        value = value.detach()
        if "bfloat16" in str(value.dtype):
            value = value.float()
        return value.cpu().numpy()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, complex, str, np.ndarray, np.generic)):
        return value
    raise TypeError(f"a case returns tensors, arrays, numbers, strings and None, not {value!r}")


def compare(found: Any, wanted: Any, tolerance: float, where: str) -> None:
    """Raise an assertion unless two plain values are the same, with dtypes and shapes of arrays."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), where
        assert list(found) == list(wanted), where
        for key, item in wanted.items():
            compare(found[key], item, tolerance, f"{where}[{key!r}]")
    elif isinstance(wanted, list):
        assert isinstance(found, list), where
        assert len(found) == len(wanted), where
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            compare(one, other, tolerance, f"{where}[{place}]")
    elif isinstance(wanted, (np.ndarray, np.generic)):
        one, other = np.asarray(found), np.asarray(wanted)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if one.dtype.kind in "fc":
            np.testing.assert_allclose(one, other, tolerance, tolerance, err_msg=where)
        else:
            np.testing.assert_array_equal(one, other, err_msg=where)
    elif isinstance(wanted, (float, complex)):
        np.testing.assert_allclose(found, wanted, tolerance, tolerance, err_msg=where)
    else:
        assert found == wanted, where
