"""Functions and layers under older or rarer names, and their errors; see `tests/names/layers.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F
from vmflow import nn
from vmflow.distributed import simulate


def test_older_names_of_interpolate_warn_where_they_are_called() -> None:
    x = flow.arange(4.0).reshape(1, 1, 2, 2)
    for function in (F.upsample, F.upsample_nearest, F.upsample_bilinear):
        with pytest.warns(UserWarning, match=f"{function.__name__} is a deprecated name") as caught:
            assert function(x, 4).shape == (1, 1, 4, 4)
        assert caught[0].filename == __file__


def test_indices_are_returned_even_with_return_indices_false() -> None:
    x = flow.arange(16.0).reshape(1, 1, 4, 4)
    for arguments in ((2,), (2, None, 0, 1, False, False)):
        values, indices = F.max_pool2d_with_indices(x, *arguments)
        assert values.flatten().tolist() == indices.flatten().tolist() == [5, 7, 13, 15]
    assert F.adaptive_max_pool2d_with_indices(x, 1, return_indices=False)[1].tolist() == [[[[15]]]]
    assert F.max_pool2d_with_indices.__name__ == "max_pool2d_with_indices"


def test_fractional_pooling_draws_where_windows_begin() -> None:
    x = flow.tensor(np.random.default_rng(2).standard_normal((2, 3, 9, 11)), requires_grad=True)
    layer = nn.FractionalMaxPool2d(2, output_ratio=(0.5, 0.6), return_indices=True)
    flow.manual_seed(1)
    values, indices = layer(x)
    assert values.shape == (2, 3, 4, 6)
    assert indices.dtype is flow.int64
    assert x.flatten(2).gather(2, indices.flatten(2)).tolist() == values.flatten(2).tolist()
    flow.manual_seed(1)
    assert F.fractional_max_pool2d(x, 2, (4, 6)).tolist() == values.tolist()
    assert F.fractional_max_pool2d(x, 2, (4, 6)).tolist() != values.tolist()
    values.sum().backward()
    assert x.grad is not None
    assert x.grad.sum().item() == values.numel()
    half = F.fractional_max_pool3d(flow.ones(1, 4, 4, 4).half(), 2, 2)
    assert half.dtype is flow.float16
    assert half.tolist() == flow.ones(1, 2, 2, 2).tolist()
    nans = flow.ones(1, 1, 2, 2)
    nans[0, 0, 1, 0] = float("nan")
    assert F.fractional_max_pool2d(nans, 2, 1).isnan().all().item()


def test_fractional_pooling_in_a_graph_draws_anew() -> None:
    class Pooled(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            found: flow.Tensor = F.fractional_max_pool2d(x, 2, 8)
            return found

    x, graph = flow.rand(1, 4, 20, 20), Pooled()
    assert graph(x).tolist() != graph(x).tolist()


def test_errors_of_fractional_pooling() -> None:
    x = flow.ones(1, 2, 4, 4)
    for settings in ({}, {"output_size": 2, "output_ratio": 0.5}):
        with pytest.raises(ValueError, match="fractional_max_pool2d: give either output_size or output_ratio"):
            F.fractional_max_pool2d(x, 2, **settings)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="FractionalMaxPool2d: give either output_size or output_ratio"):
            nn.FractionalMaxPool2d(2, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="output_ratio must be numbers between 0 and 1"):
        nn.FractionalMaxPool3d(2, output_ratio=1.5)
    with pytest.raises(ValueError, match=r"\[4, 4\] windows of \[2, 2\] do not fit"):
        F.fractional_max_pool2d(x, 2, 4)
    with pytest.raises(ValueError, match=r"_random_samples must have shape \[1, 2, 2\], got \[1, 2\]"):
        F.fractional_max_pool2d(x, 2, 2, _random_samples=flow.ones(1, 2))
    with pytest.raises(ValueError, match="fractional_max_pool3d: expected an input"):
        F.fractional_max_pool3d(flow.ones(2, 3, 4), 2, 2)
    with pytest.raises(TypeError, match="not defined for int64"):
        F.fractional_max_pool2d(x.long(), 2, 2)


def test_pdist_is_above_the_diagonal_of_cdist() -> None:
    x = flow.tensor(np.random.default_rng(3).standard_normal((5, 3)), requires_grad=True)
    wide = flow.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").detach().numpy()
    np.testing.assert_allclose(F.pdist(x).detach().numpy(), wide[np.triu_indices(5, 1)])
    assert F.pdist(flow.ones(3, 0)).tolist() == [0, 0, 0]
    empty = flow.ones(1, 3, requires_grad=True)
    F.pdist(empty).sum().backward()
    assert empty.grad is not None
    assert empty.grad.tolist() == [[0, 0, 0]]
    with pytest.raises(ValueError, match="pdist: expected a matrix of rows, got shape"):
        F.pdist(flow.ones(3))
    with pytest.raises(ValueError, match="pdist: p must be 0 or more, not -1"):
        F.pdist(x, -1)
    with pytest.raises(TypeError, match="pdist: expected a floating-point dtype, got int64"):
        F.pdist(flow.ones(3, 2).long())


def test_conv_tbc_takes_three_dimensions() -> None:
    with pytest.raises(ValueError, match=r"conv_tbc: expected an input \(length, samples, channels\)"):
        F.conv_tbc(flow.ones(3, 2), flow.ones(2, 3, 4), flow.ones(4))


def test_normalize_writes_into_a_tensor() -> None:
    x, out = flow.tensor([[3.0, 4.0]]), flow.zeros(1, 2)
    assert F.normalize(x, out=out) is out
    np.testing.assert_allclose(out.numpy(), [[0.6, 0.8]], 1e-6)
    with pytest.raises(RuntimeError, match="do not support automatic differentiation"):
        F.normalize(x.clone().requires_grad_(), out=out)


def test_the_function_of_attention_is_the_layers() -> None:
    layer = nn.MultiheadAttention(8, 2)
    x = flow.randn(3, 2, 8)
    function: Any = F.multi_head_attention_forward
    weights: tuple[Any, ...] = (layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0)
    last = (layer.out_proj.weight, layer.out_proj.bias)
    found = function(x, x, x, 8, 2, *weights, *last)
    expected = layer(x, x, x)
    for mine, other in zip(found, expected, strict=True):
        assert mine is not None
        assert mine.tolist() == other.tolist()
    with pytest.raises(ValueError, match="multi_head_attention_forward: expected a query, a key and a value"):
        function(x, x, x, 6, 2, *weights, *last)
    with pytest.raises(ValueError, match="8 features cannot be split into 3 heads"):
        function(x, x, x, 8, 3, *weights, *last)
    with pytest.raises(ValueError, match="in_proj_weight is needed"):
        function(x, x, x, 8, 2, None, *weights[1:], *last)
    with pytest.raises(ValueError, match="needs q_proj_weight, k_proj_weight, v_proj_weight"):
        function(x, x, x, 8, 2, *weights, *last, use_separate_proj_weight=True)
    with pytest.raises(ValueError, match="give both bias_k and bias_v"):
        function(x, x, x, 8, 2, weights[0], weights[1], flow.ones(1, 1, 8), None, False, 0.0, *last)
    with pytest.raises(ValueError, match=r"static_k must have shape \[4, length, 4\], got \[2, 3, 4\]"):
        function(x, x, x, 8, 2, *weights, *last, static_k=flow.ones(2, 3, 4))


def test_sync_batch_norm_shares_the_parameters_of_the_layer_it_replaces() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.Sequential(nn.BatchNorm1d(3, momentum=None)), nn.BatchNorm2d(2)).eval()
    before = model.state_dict()
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    norm = model[1][0]
    assert type(norm) is nn.SyncBatchNorm
    assert norm.momentum is None
    assert not norm.training
    after = model.state_dict()
    assert list(after) == list(before)
    assert nn.SyncBatchNorm.convert_sync_batchnorm(norm) is norm
    x = flow.randn(4, 3, 5)
    plain = nn.BatchNorm1d(3)
    assert norm.train()(x).tolist() == plain(x).tolist()
    with pytest.raises(ValueError, match="SyncBatchNorm: expected at least 2 dimensions"):
        norm(flow.ones(3))
    with pytest.raises(ValueError, match="process_group must be None"):
        nn.SyncBatchNorm(3, process_group=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="process_group must be None"):
        nn.SyncBatchNorm.convert_sync_batchnorm(nn.Linear(2, 2), 1)  # type: ignore[arg-type]


def test_a_batch_norm_with_two_names_is_replaced_by_one_sync_batch_norm() -> None:
    shared = nn.BatchNorm1d(3)
    model = nn.Sequential(shared, nn.Sequential(shared), shared)
    nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(model[0]) is nn.SyncBatchNorm
    assert model[0] is model[1][0] is model[2]


def test_a_lazy_batch_norm_is_replaced_after_its_first_input() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.LazyBatchNorm1d()))
    with pytest.raises(
        ValueError, match=r"the LazyBatchNorm1d '1\.0' has no number of channels .* call the module once"
    ):
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(model[0]) is nn.BatchNorm1d
    with pytest.raises(ValueError, match="the LazyBatchNorm2d has no number of channels"):
        nn.SyncBatchNorm.convert_sync_batchnorm(nn.LazyBatchNorm2d())
    x = flow.randn(4, 3)
    expected = model.eval()(x).tolist()
    nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert model[1][0].num_features == 3
    assert model(x).tolist() == expected


def test_sync_batch_norm_of_several_ranks_takes_global_tensors() -> None:
    data = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)

    def program() -> tuple[Any, Any]:
        layer = nn.SyncBatchNorm(3)
        rank = flow.env.get_rank()
        part = flow.tensor(data[2 * rank : 2 * rank + 2])
        with pytest.raises(ValueError, match="batches of several ranks are normalised together as a global"):
            layer(part)
        place = flow.placement("cpu", [0, 1])
        layer.to_global(place, flow.sbp.broadcast)
        found = layer(part.to_global(place, flow.sbp.split(0)))
        return found.numpy(), layer.running_mean.numpy()

    plain = nn.BatchNorm1d(3)
    expected = plain(flow.tensor(data)).detach().numpy()
    for found, mean in simulate(program, 2):
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
        np.testing.assert_allclose(mean, plain.running_mean.numpy(), 1e-5)
