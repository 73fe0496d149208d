"""einops on tensors: by its own backends once `vmflow.einops` has registered one, and by its array API functions."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import vmflow as flow

einops = pytest.importorskip("einops")


def sample() -> flow.Tensor:
    return flow.tensor(np.random.default_rng(0).normal(size=(2, 3, 4, 4)))


CALLS: dict[str, Any] = {
    "rearrange": lambda lib, x: lib.rearrange(x, "b c (h p) w -> (b h) p (c w)", p=2),
    "rearrange a list": lambda lib, x: lib.rearrange([x, x + 1], "k b ... -> b k ..."),
    "repeat": lambda lib, x: lib.repeat(x, "b c h w -> (b k) c h w m", k=3, m=2),
    "sum": lambda lib, x: lib.reduce(x, "b c (h 2) w -> b w", "sum"),
    "mean": lambda lib, x: lib.reduce(x, "b c (h 2) w -> w b", "mean"),
    "max": lambda lib, x: lib.reduce(x, "b c (h 2) w -> b w", "max"),
    "min": lambda lib, x: lib.reduce(x, "b c h w -> ", "min"),
    "prod": lambda lib, x: lib.reduce(x, "b c h w -> b 1 h", "prod"),
    "any": lambda lib, x: lib.reduce(x > 1, "b c h w -> b h", "any"),
    "all": lambda lib, x: lib.reduce(x > -1, "b c h w -> b h", "all"),
}


@pytest.mark.parametrize("name", CALLS)
def test_patterns(name: str) -> None:
    call = CALLS[name]
    from einops import array_api

    import vmflow.einops as ours

    expected = call(einops, sample().numpy())
    for library in (ours, einops, array_api):
        found = call(library, sample())
        assert isinstance(found, flow.Tensor)
        np.testing.assert_allclose(found.numpy(), expected)


def test_einsum_and_packing() -> None:
    from vmflow.einops import einsum, pack, parse_shape, unpack

    x, plain = sample(), sample().numpy()
    found = einsum(x, x, "b c h w, b c h v -> b w v")
    np.testing.assert_allclose(found.numpy(), np.einsum("bchw,bchv->bwv", plain, plain))
    packed, shapes = pack([x, x[:, :, :, 0]], "b c *")
    assert packed.shape == (2, 3, 20)
    whole, part = unpack(packed, shapes, "b c *")
    np.testing.assert_array_equal(whole.numpy(), plain)
    np.testing.assert_array_equal(part.numpy(), plain[..., 0])
    assert parse_shape(x, "b _ h w") == {"b": 2, "h": 4, "w": 4}


def test_gradients_flow_and_repeating_copies_nothing() -> None:
    from vmflow.einops import rearrange, repeat

    x = flow.ones(2, 3, requires_grad=True)
    repeat(rearrange(x, "a b -> b a"), "b a -> b a k", k=4).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[4.0] * 3] * 2
    wide = repeat(x.detach(), "a b -> a b k", k=1000)
    assert wide._blob.storage is x._blob.storage


def test_errors_are_einops_own() -> None:
    from vmflow.einops import EinopsError, rearrange

    with pytest.raises(EinopsError, match="Error while processing rearrange"):
        rearrange(sample(), "a b -> b a")


def test_einops_is_imported_on_first_use() -> None:
    program = """
        import sys
        import vmflow as flow
        flow.einops
        assert "einops" not in sys.modules
        assert "rearrange" in dir(flow.einops)
        sys.modules["einops"] = None
        try:
            flow.einops.rearrange
        except ImportError as error:
            assert "pip install einops" in str(error)
        else:
            raise AssertionError
        assert not hasattr(flow.einops, "rearranged")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
