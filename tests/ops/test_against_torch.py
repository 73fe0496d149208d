"""Functions that vmflow and PyTorch both have, called with the same arguments: results, dtypes and gradients agree.

Each line of `CALLS` is evaluated twice, with `t` for the library, `F` for its nn.functional, `L` for its linalg and `S`
for its special functions; the operands are those of `operands`.  A call of a function that is a method too is also made
as one, and in place where there is such a form.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest

import vmflow as flow
from vmflow.ops.declaration import in_place_functions

torch = pytest.importorskip("torch", reason="compares with PyTorch")

CALLS: Final = """
t.abs(x)
t.absolute(x)
t.acos(u)
t.adjoint(x)
t.adjoint(b)
t.acosh(o)
t.add(x, y)
t.add(x, r)
t.add(x, 2.5)
t.add(k, 2)
t.add(k, 2.5)
t.add(x, k, alpha=2)
t.add(m, m)
t.addcdiv(x, y, p, value=0.5)
t.addcmul(x, y, p, value=0.5)
t.addmm(x, c @ c.t(), x, beta=0.5, alpha=2)
t.addmv(v[:3], x, r)
t.addbmm(x[:, :3] @ a[:3], b, b2 @ b2.transpose(1, 2))
t.addr(x, v[:3], r)
t.all(m)
t.all(k, 1)
t.all(m, 0, keepdim=True)
t.allclose(x, x + 1e-9)
t.amax(x)
t.amax(x, 1)
t.amax(x, (0, 1), keepdim=True)
t.amin(x, 0)
t.aminmax(x, dim=1)
t.angle(x)
t.any(m, 1)
t.arange(3)
t.arange(1, 2.5, 0.5)
t.arange(7, 1, -2)
t.arccos(u)
t.arccosh(o)
t.arcsin(u)
t.arcsinh(x)
t.arctan(x)
t.arctan2(x, y)
t.arctanh(u)
t.argmax(x)
t.argmax(x, 1)
t.argmin(x, 0, keepdim=True)
t.argsort(x)
t.argsort(x, dim=0, descending=True)
t.argwhere(m)
t.as_strided(x, (2, 3), (1, 4), 1)
t.asin(u)
t.asinh(x)
t.atan(x)
t.atan2(x, y)
t.atanh(u)
t.atleast_1d(s)
t.atleast_2d(v)
t.atleast_3d(x)
t.baddbmm(b @ b2, b, b2, beta=0.5, alpha=2)
t.bartlett_window(7, dtype=t.float64)
t.bincount(k.reshape(-1))
t.bincount(k.reshape(-1), minlength=20)
t.bitwise_and(k, k2)
t.bitwise_left_shift(k, 2)
t.bitwise_not(k)
t.bitwise_or(k, k2)
t.bitwise_right_shift(k, 1)
t.bitwise_xor(k, k2)
t.blackman_window(7, dtype=t.float64)
t.block_diag(x, a)
t.bmm(b, b2)
t.broadcast_tensors(r, c)
t.broadcast_to(r, (3, 4))
t.bucketize(x, v.sort()[0])
t.cartesian_prod(v, w)
t.cat([x, y])
t.cat([x, y], dim=1)
t.cat([x, k], -1)
t.cdist(x, y)
t.cdist(x, y, p=1.0)
t.fake_quantize_per_tensor_affine(x, 0.25, 1, -3, 4)
t.fake_quantize_per_tensor_affine(x, t.tensor(0.25), t.tensor(-1, dtype=t.int32), -3, 4)
t.fake_quantize_per_channel_affine(x, t.tensor([0.1, 0.2, 0.3, 0.5]), t.tensor([0, 1, -1, 2], dtype=t.int32), 1, -4, 3)
t.ceil(x)
t.cholesky(spd)
t.cholesky(spd, upper=True)
t.cholesky_inverse(spd.tril())
t.chunk(x, 2, dim=1)
t.clamp(x, -0.5, 0.5)
t.clamp(x, min=0)
t.clamp(k, max=3)
t.clamp(x, min=-p, max=p)
t.clamp_max(x, 0.5)
t.clamp_min(x, 0.5)
t.clip(x, -0.5, 0.5)
t.clone(x)
t.column_stack([v, w])
t.combinations(v, 2)
t.concat([x, y], 1)
t.concatenate([x, y], 1)
t.conj(x)
t.conj_physical(x)
t.copysign(x, y)
t.corrcoef(x)
t.cos(x)
t.cosh(x)
t.count_nonzero(k, 1)
t.cov(x)
t.cov(x, correction=0)
t.cross(x[:, :3], y[:, :3], dim=1)
t.cummax(x, 1)
t.cummin(x, 0)
t.cumprod(x, 1)
t.cumulative_trapezoid(x)
t.cumulative_trapezoid(x, v[:4], dim=1)
t.cumulative_trapezoid(x, dx=0.5, dim=0)
t.cumsum(x, 1)
t.cumsum(k, 0)
t.detach(x)
t.deg2rad(x)
t.diag(v)
t.diag(x, 1)
t.diag_embed(x, 1)
t.diagflat(v, -1)
t.diagonal(x, 1)
t.diagonal(b, 0, 1, 2)
t.diagonal_scatter(x, v[:3])
t.diff(x)
t.diff(x, 2, 0)
t.digamma(p)
t.dist(x, y)
t.dist(x, y, 1)
t.div(x, p)
t.div(k, k3)
t.div(x, p, rounding_mode="floor")
t.div(k, k3, rounding_mode="trunc")
t.divide(x, 2)
t.dot(v, w)
t.dsplit(b, 2)
t.dstack([x, y])
t.einsum("ij,kj->ik", x, y)
t.einsum("bij,bjk->bik", b, b2)
t.einsum("ii->i", a)
t.empty_like(z)
t.eq(k, k2)
t.eq(x, 1)
t.equal(x, x)
t.erf(x)
t.erfc(x)
t.erfinv(u)
t.exp(x)
t.exp2(x)
t.expm1(x)
t.eye(3)
t.eye(2, 4)
t.fill(x, 2.5)
t.flatten(b)
t.flatten(b, 1)
t.flip(x, [0, 1])
t.flip(x, (1,))
t.fliplr(x)
t.flipud(x)
t.float_power(p, 2)
t.floor(x)
t.floor_divide(x, p)
t.floor_divide(k, 2)
t.fix(x)
t.fmax(x, y)
t.fmin(x, y)
t.fmod(x, p)
t.frac(x)
t.full((2, 3), 7)
t.full((2,), 1.5)
t.full_like(x, 3)
t.gather(x, 0, ix)
t.frexp(x)
t.gcd(k, k3)
t.ger(v, w)
t.get_device(x)
t.gradient(x, spacing=[2.0, 0.5])
t.gradient(b, dim=(0, 2), edge_order=1)
t.gradient(v, spacing=(t.tensor([0.0, 1, 3, 4, 9]),), edge_order=2)
t.gradient(k)
t.ge(x, y)
t.greater(x, 0)
t.greater_equal(x, y)
t.gt(x, 0)
t.hamming_window(7, dtype=t.float64)
t.hann_window(7, dtype=t.float64)
t.heaviside(x, y)
t.histc(x, 5, -2, 2)
t.histogram(fixed, 5)
t.hsplit(x, 2)
t.hstack([x, y])
t.hypot(x, y)
t.i0(x)
t.igamma(fixed, p)
t.igammac(fixed, p)
t.index_add(x, 0, i[:3], y)
t.index_add(x, 0, i[:3], y, alpha=2)
t.index_copy(x, 0, t.tensor([2, 0]), y[:2])
t.index_fill(x, 1, t.tensor([0, 3]), 1.5)
t.index_put(x, (i[:3], i[:3]), v[:3], accumulate=True)
t.index_reduce(x, 0, i[:3], y, "amax")
t.index_select(x, 1, i)
t.inner(x, y)
t.isclose(x, y)
t.is_inference(x)
t.is_same_size(x, y)
t.is_signed(k)
t.isfinite(n)
t.isin(k, t.tensor([1, 3]))
t.isinf(n)
t.isnan(n)
t.isreal(x)
t.isneginf(n)
t.isposinf(n)
t.istft(t.complex(x, y), 4, window=p[0])
t.kaiser_window(7, dtype=t.float64)
t.kron(x[:2, :2], y[:2, :2])
t.kthvalue(x, 2, 1)
t.le(x, y)
t.lcm(k, k3)
t.ldexp(x, k)
t.lerp(x, y, 0.3)
t.lerp(x, y, u)
t.less(x, y)
t.less_equal(x, 0)
t.lgamma(p)
t.linspace(0, 1, 5)
t.log(p)
t.log10(p)
t.log1p(p)
t.log2(p)
t.log_softmax(x, 1)
t.logaddexp(x, y)
t.logaddexp2(x, y)
t.logcumsumexp(x, 1)
t.logical_and(m, k)
t.logical_not(k)
t.logical_or(m, m)
t.logical_xor(m, k)
t.logit(h)
t.logit(h, 0.3)
t.logspace(0, 2, 4)
t.logsumexp(x, 1)
t.logsumexp(x, (0, 1))
t.lt(x, 0)
t.lu(a)
t.lu(a, get_infos=True)[0]
t.lu_solve(spd, *L.lu_factor(a))
t.lu_unpack(*L.lu_factor(a))
t.masked_fill(x, m, 9.0)
t.masked_scatter(x, m, y)
t.masked_select(x, m)
t.matmul(x, a)
t.matmul(v, w)
t.matmul(b, b2)
t.matmul(b, r)
t.max(x)
t.max(x, 1)
t.max(x, y)
t.maximum(x, y)
t.mean(x)
t.mean(x, 0, keepdim=True)
t.median(x)
t.median(x, 1)
t.meshgrid(v, w, indexing="ij")
t.meshgrid(v, w, indexing="xy")
t.min(x, 0)
t.minimum(x, y)
t.mm(x, a)
t.mode(k, 1)
t.moveaxis(b, 0, 2)
t.movedim(b, (0, 1), (2, 0))
t.msort(x)
t.mul(x, y)
t.mul(k, 2.5)
t.multiply(x, c)
t.mv(x, r)
t.mvlgamma(o, 2)
t.nan_to_num(n)
t.nan_to_num(n, 1.0, 2.0, -2.0)
t.nanmean(n[:, :1])
t.nanmedian(n[:, :1])
t.nanquantile(x, 0.3)
t.nansum(n[:, :1])
t.narrow(x, 1, 1, 2)
t.ne(k, k2)
t.neg(x)
t.narrow_copy(x, 1, 1, 2)
t.negative(x)
t.nextafter(k.to(t.float64), k2.to(t.float64))
t.nonzero(m)
t.norm(x)
t.norm(x, 1, 1)
t.not_equal(x, 1)
t.numel(x)
t.ones(2, 3)
t.ones_like(k)
t.orgqr(a, r)
t.outer(v, w)
t.permute(b, (2, 0, 1))
t.polygamma(1, p)
t.polar(p, y).real
t.positive(x)
t.pow(p, 2.5)
t.pow(p, y)
t.pow(2.0, x)
t.pow(k, 2)
t.prod(x)
t.prod(x, 1)
t.prod(k, 0)
t.put(x, t.tensor([0, 5]), v[:2])
t.put(x, t.tensor([0, 0]), v[:2], accumulate=True)
t.qr(a)
t.quantile(x, 0.3)
t.quantile(x, 0.5, dim=1, keepdim=True)
t.rad2deg(x)
t.ravel(x)
t.real(x)
t.reciprocal(p)
t.relu(x)
t.remainder(x, p)
t.remainder(k, -3)
t.renorm(x, 2, 0, 1.0)
t.repeat_interleave(x, 2, dim=1)
t.repeat_interleave(x, t.tensor([1, 0, 2]), dim=0)
t.reshape(x, (2, -1))
t.roll(x, 1)
t.roll(x, (1, -1), (0, 1))
t.rot90(x)
t.rot90(x, 2, (1, 0))
t.round(x)
t.round(x, decimals=1)
t.row_stack((x, v[:4]))
t.rsqrt(p)
t.rsub(x, y, alpha=2)
t.scatter(x, 0, ix, y[:2])
t.scatter(x, 0, ix, 1.5)
t.scatter_add(x, 0, ix, y[:2])
t.scatter_reduce(x, 0, ix, y[:2], "amax")
t.scatter_reduce(x, 0, ix, y[:2], "sum", include_self=False)
t.searchsorted(v.sort()[0], x)
t.select(x, 1, 2)
t.select_scatter(x, r, 0, 1)
t.scalar_tensor(2.5)
t.sgn(x)
t.sigmoid(x)
t.sign(x)
t.signbit(x)
t.sin(x)
t.sinc(x)
t.sinh(x)
t.slice_scatter(x, y[:1], 0, 1, 2)
t.softmax(x, 1)
t.softmax(x, 0, dtype=t.float32)
t.sort(x)
t.sort(x, 0, descending=True)
t.split(x, 3, 1)
t.split(x, [1, 3], 1)
t.split_with_sizes(x, [1, 3], 1)
t.sqrt(p)
t.square(x)
t.squeeze(b[:, :1])
t.squeeze(b[:, :1], 1)
t.stack([x, y])
t.stack([x, y], -1)
t.std(x)
t.std(x, 1)
t.std(x, 1, correction=0)
t.std_mean(x, 1)
t.stft(x, 4, window=r, return_complex=False)
t.sub(x, y)
t.sub(x, y, alpha=3)
t.subtract(x, 1)
t.sum(x)
t.sum(x, 1)
t.sum(m)
t.sum(x, (0, 1), keepdim=True)
t.svd(a)[1]
t.swapaxes(b, 0, 1)
t.swapdims(b, 0, 2)
t.t(x)
t.take(x, ix)
t.take_along_dim(x, ix, 0)
t.tan(x)
t.tanh(x)
t.tensor([1, 2])
t.tensor([[1.5], [2]])
t.tensor_split(v, 3)
t.tensor_split(v, (1, 3))
t.tensordot(x, y, dims=([1], [1]))
t.tensordot(b, b, 2)
t.tile(x, (2, 1))
t.topk(x, 2)
t.topk(x, 2, 0, largest=False)
t.trace(a)
t.transpose(b, 0, 2)
t.trapezoid(x, dim=1)
t.trapz(x, dim=1)
t.tril(x)
t.tril(b, -1)
t.tril_indices(3, 4)
t.triu(x, 1)
t.triu_indices(3, 4, 1)
t.true_divide(x, 2)
t.trunc(x)
t.unbind(x)
t.unbind(x, 1)
t.unflatten(x, 1, (2, 2))
t.unravel_index(k, (3, 2))
t.unsafe_chunk(x, 2)
t.unsafe_split(x, 2)
t.unsafe_split_with_sizes(x, (1, 2))
t.unique(k)
t.unique(k, return_inverse=True, return_counts=True)
t.unique_consecutive(k.reshape(-1))
t.unsqueeze(x, 1)
t.vander(fixed[0])
t.vander(fixed[0], 3, increasing=True)
t.var(x)
t.var(x, 1, correction=0)
t.var(x, (0, 1), keepdim=True)
t.var_mean(x, 1)
t.vdot(v, w)
t.view_as_real(x + 0j)
t.vsplit(a, 2)
t.vstack([x, y])
t.where(m, x, y)
t.where(m, x, 0.0)
t.xlogy(x, p)
t.zeros(2, 0, 3)
t.zeros_like(x)
t.chain_matmul(x, a, a)
t.cholesky_solve(x.t(), L.cholesky(spd))
t.det(a)
t.inverse(a)
t.logdet(spd)
t.matrix_exp(a * 0.1)
t.matrix_power(a, 3)
t.pinverse(a)
t.slogdet(a)
t.can_cast(t.int64, t.float32)
t.promote_types(t.int64, t.float32) == t.float32
t.result_type(x, 2) == t.float64
t.broadcast_shapes((3, 1), (4,))
t.is_floating_point(k)
t.is_complex(x)
t.is_nonzero(s)
t.is_tensor(x)
t.selu(x)
t.celu(x)
t.dropout(x, 0.5, False)
t.layer_norm(x, (4,))
t.cosine_similarity(x, y)
t.pairwise_distance(x, y)
t.prelu(x, s.reshape(1))
t.rms_norm(x, (4,))
t.pixel_shuffle(e4, 2)
t.pixel_unshuffle(img, 2)
t.conv1d(seq, kernel1, padding=1)
t.conv2d(img, kernel2)
t.conv3d(vol, kernel3)
t.bilinear(x, y, t.stack([a, a, a]))
F.adaptive_avg_pool1d(seq, 5)
F.adaptive_avg_pool2d(img, (3, 2))
F.adaptive_avg_pool3d(vol, 2)
F.adaptive_max_pool1d(seq, 5)
F.adaptive_max_pool2d(img, (3, 2))
F.adaptive_max_pool3d(vol, 2)
F.affine_grid(x[None, :2, :3], (1, 1, 3, 4), align_corners=False)
F.alpha_dropout(x, 0.5, False)
F.avg_pool1d(seq, 3)
F.avg_pool2d(img, 3, 2, 1)
F.avg_pool2d(img, 3, 2, 1, count_include_pad=False)
F.avg_pool3d(vol, 2)
F.batch_norm(img, None, None, training=True)
F.batch_norm(img, fixed[0, :3], fixed[1, :3], v[:3], w[:3])
F.bilinear(x, y, t.stack([a, a, a]))
F.binary_cross_entropy(h, h2)
F.binary_cross_entropy(h, h2, weight=fixed, reduction="sum")
F.binary_cross_entropy_with_logits(x, h)
F.binary_cross_entropy_with_logits(x, h, pos_weight=fixed)
F.celu(x, 0.7)
F.conv1d(seq, kernel1, v[:4], stride=2, padding=1)
F.conv2d(img, kernel2, padding=1, dilation=2)
F.conv3d(vol, kernel3, padding=1)
F.conv_transpose1d(seq, kernel1t, stride=2, padding=1, output_padding=1)
F.conv_transpose2d(img, kernel2t, stride=2)
F.conv_transpose3d(vol, kernel3t)
F.cosine_embedding_loss(x, y, sgn3, margin=0.1)
F.cosine_similarity(x, y)
F.cross_entropy(x, labels)
F.cross_entropy(x, labels, label_smoothing=0.1, reduction="none")
F.cross_entropy(x, labels, weight=fixed[0], ignore_index=1)
F.ctc_loss(logs, t.tensor([[1, 2], [2, 1]]), t.tensor([6, 5]), t.tensor([2, 1]))
F.dropout(x, 0.5, False)
F.dropout1d(b, 0.5, False)
F.dropout2d(img, 0.5, False)
F.dropout3d(vol, 0.5, False)
F.elu(x, 0.7)
F.embedding(ix, e)
F.embedding(ix, e, padding_idx=1)
F.embedding_bag(ix, e)
F.embedding_bag(ix, e, mode="sum")
F.feature_alpha_dropout(img, 0.5, False)
F.fold(cols, (4, 4), 2, stride=2)
F.gaussian_nll_loss(x, y, p)
F.gelu(x)
F.gelu(x, approximate="tanh")
F.glu(x)
F.grid_sample(img, grid, align_corners=False)
F.grid_sample(img, grid, mode="nearest", padding_mode="border", align_corners=True)
F.group_norm(chan, 2)
F.hardshrink(x, 0.3)
F.hardsigmoid(x * 3)
F.hardswish(x * 3)
F.hardtanh(x, -0.4, 0.6)
F.hinge_embedding_loss(x, sgn)
F.huber_loss(x, y, delta=0.5)
F.instance_norm(img)
F.interpolate(img, scale_factor=2)
F.interpolate(img, size=(5, 7), mode="bilinear", align_corners=False)
F.interpolate(img, size=(5, 7), mode="bicubic", align_corners=True)
F.interpolate(seq, size=5, mode="linear")
F.interpolate(img, size=(3, 2), mode="area")
F.kl_div(x, fixed)
F.kl_div(x, h, reduction="batchmean", log_target=True)
F.l1_loss(x, y)
F.layer_norm(x, (4,), r, r)
F.leaky_relu(x, 0.2)
F.linear(x, a, r)
F.local_response_norm(img, 3)
F.log_softmax(x, 1)
F.logsigmoid(x)
F.lp_pool1d(seq.abs(), 2, 3)
F.lp_pool2d(img.abs(), 2, 3)
F.lp_pool3d(vol.abs(), 2, 2)
F.margin_ranking_loss(x, y, sgn, margin=0.1)
F.max_pool1d(seq, 3)
F.max_pool2d(img, 3, 2, 1)
F.max_pool2d(img, 2, return_indices=True)
F.max_pool3d(vol, 2)
F.max_pool1d_with_indices(b, 2)
F.max_pool2d_with_indices(img, 2, 1, 1, 1, True, False)
F.max_pool3d_with_indices(vol, 2)
F.adaptive_max_pool1d_with_indices(b, 2)
F.adaptive_max_pool2d_with_indices(img, (2, 3), False)
F.adaptive_max_pool3d_with_indices(vol, 2)
F.conv_tbc(b, b.movedim(1, 2)[:, :, :2], r[:2], 2)
F.pdist(x, 1.0)
t.pdist(x)
t.pdist(y, 3.0)
F.max_unpool1d(*F.max_pool1d(seq, 2, return_indices=True), 2)
F.max_unpool2d(*F.max_pool2d(img, 2, return_indices=True), 2)
F.max_unpool3d(*F.max_pool3d(vol[..., :4, :4, :4], 2, return_indices=True), 2)
F.mish(x)
F.mse_loss(x, y)
F.mse_loss(x, y, reduction="sum")
F.multi_margin_loss(x, labels)
F.multilabel_margin_loss(x, t.tensor([[0, 2, -1, 0], [1, -1, 0, 0], [3, 0, 1, -1]]))
F.multilabel_soft_margin_loss(x, (h > 0.5) * 1.0)
F.nll_loss(x, labels)
F.nll_loss(x, labels, weight=fixed[0], reduction="none")
F.normalize(x)
F.normalize(x, p=1.0, dim=0)
F.one_hot(labels, 5)
F.pad(img, (1, 2, 0, 1))
F.pad(img, (1, 2, 0, 1), value=3.0)
F.pad(img, (1, 2, 0, 1), mode="reflect")
F.pad(img, (1, 2, 0, 1), mode="replicate")
F.pad(img, (1, 2, 0, 1), mode="circular")
F.pairwise_distance(x, y)
F.pdist(x)
F.pdist(x, 1)
F.pixel_shuffle(e4, 2)
F.pixel_unshuffle(img, 2)
F.poisson_nll_loss(x, p)
F.poisson_nll_loss(x, p, full=True)
F.prelu(x, s.reshape(1))
F.relu(x)
F.relu6(x * 4)
F.rms_norm(x, (4,), r)
F.rrelu(x)
F.scaled_dot_product_attention(q4, k4, v4)
F.scaled_dot_product_attention(q4, k4, v4, is_causal=True)
F.scaled_dot_product_attention(q4, k4, v4, attn_mask=x[:3, :3] * 1, scale=0.4)
F.selu(x)
F.sigmoid(x)
F.silu(x)
F.smooth_l1_loss(x, y, beta=0.5)
F.soft_margin_loss(x, fixed - 1)
F.softmax(x, 1)
F.softmin(x, 1)
F.softplus(x, 2, 1)
F.softshrink(x, 0.3)
F.softsign(x)
F.tanh(x)
F.tanhshrink(x)
F.threshold(x, 0.2, -1.0)
F.triplet_margin_loss(x, y, p)
F.triplet_margin_loss(x, y, p, swap=True, margin=0.5)
F.triplet_margin_with_distance_loss(x, y, p)
F.unfold(img, 3, padding=1, stride=2)
L.cholesky(spd)
L.cholesky(spd, upper=True)
L.cholesky_ex(spd)
L.cholesky_ex(spd, upper=True)
L.cond(a)
L.cond(a, -2)
L.cross(x[:, :3], y[:, :3])
L.det(a)
L.diagonal(b)
L.eigh(spd)[0]
L.eigvals(spd).real
L.eigvalsh(spd)
L.householder_product(x.t(), v[:3])
L.inv(a)
L.inv_ex(a)
L.lstsq(a, x.t())[0]
L.lu(a)
L.lu(x)
L.lu(x.t())
L.lu_factor(a)[0]
L.lu_factor_ex(a)
L.lu_solve(*L.lu_factor(a), x.t())
L.lu_solve(*L.lu_factor(a), x, left=False, adjoint=True)
L.matmul(x, a)
L.matrix_exp(a * 0.1)
L.matrix_norm(a)
L.matrix_norm(a, 1)
L.matrix_norm(a, 2)
L.matrix_norm(a, "nuc")
L.matrix_power(a, 3)
L.matrix_power(a, -2)
L.matrix_power(a, 0)
L.matrix_power(a, 1)
L.matrix_rank(a)
L.multi_dot([x, a, a])
L.norm(x)
L.norm(x, 1)
L.norm(x, "fro", (0, 1))
L.norm(v, 3)
L.pinv(a)
L.qr(a)
L.slogdet(a)
L.solve(a, x.t())
L.solve(b[:, :, :3] + 3 * a[:3, :3], x[:2, :3])
L.solve_ex(a, x.t())
L.solve_triangular(spd.tril(), x.t(), upper=False)
L.svd(a)[1]
L.svdvals(a)
L.tensorinv(a, 1)
L.tensorsolve(a, r)
L.vander(v)
L.vander(v, N=3)
L.vecdot(x, y)
L.vector_norm(x)
L.vector_norm(x, 1, 1)
L.vector_norm(x, float("inf"))
S.digamma(p)
S.erfcx(x)
S.gammainc(fixed, p)
S.gammaincc(fixed, p)
S.i0(x)
S.i0e(x)
S.i1(x)
S.i1e(x)
S.log_ndtr(x)
S.multigammaln(o, 2)
S.ndtr(x)
S.ndtri(h)
S.zeta(3, p)
S.entr(p)
S.erf(x)
S.erfc(x)
S.erfinv(u)
S.exp2(x)
S.expit(x)
S.expm1(x)
S.gammaln(p)
S.log1p(p)
S.log_softmax(x, 1)
S.logit(h)
S.logsumexp(x, 1)
S.polygamma(1, p)
S.psi(p)
S.round(x)
S.sinc(x)
S.softmax(x, 1)
S.xlog1py(x, p)
S.xlogy(x, p)
"""

# Functions of both that are not called above, by reason.
ELSEWHERE: Final = {
    "random, and not by the same numbers": "bernoulli multinomial normal rand rand_like randint randint_like randn "
    "randn_like randperm gumbel_softmax poisson dropout_ alpha_dropout_",
    "of the process, the context or a file": "get_default_dtype get_default_device get_rng_state initial_seed "
    "is_anomaly_enabled is_anomaly_check_nan_enabled is_grad_enabled is_inference_mode_enabled load manual_seed save "
    "seed set_default_device "
    "set_default_dtype set_default_tensor_type set_rng_state set_printoptions is_autocast_enabled get_autocast_dtype "
    "get_num_threads set_num_threads get_float32_matmul_precision set_float32_matmul_precision "
    "are_deterministic_algorithms_enabled get_deterministic_debug_mode "
    "is_deterministic_algorithms_warn_only_enabled set_deterministic_debug_mode use_deterministic_algorithms",
    "types in PyTorch, whose constructors they stand for; see tests/test_cuda_questions.py": "BFloat16Tensor "
    "BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor",
    "of complex tensors; see test_complex_parts": "imag real view_as_complex view_as_real",
    "without defined values": "empty empty_strided",
    "about memory or other libraries; see test_creation and the tests of interchange": "as_tensor asarray from_numpy "
    "from_dlpack frombuffer is_storage",
    "in place only, as methods have it": "detach_ zero_ relu_ selu_ celu_ rrelu_ threshold_ elu_ hardtanh_ leaky_relu_",
    "composed of weights by layers; see tests/nn": "multi_head_attention_forward",
    "deprecated names, which warn; see tests/names/layers.py": "upsample upsample_nearest upsample_bilinear",
    "random unless places are given; see tests/names/layers.py": "fractional_max_pool2d fractional_max_pool3d "
    "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices",
    "functions of layers with other arguments than in nn.functional; see tests/names": "adaptive_max_pool1d "
    "affine_grid_generator alpha_dropout batch_norm embedding feature_alpha_dropout feature_alpha_dropout_ "
    "instance_norm binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss hinge_embedding_loss kl_div "
    "margin_ranking_loss poisson_nll_loss triplet_margin_loss",
    "given another gradient by PyTorch, that of the part instead of the rest": "as_strided_scatter",
    "with no comparable result": "is_conj is_neg eigh svd lu_factor resolve_conj resolve_neg complex eig "
    "native_channel_shuffle channel_shuffle",
}


def operands() -> dict[str, Any]:
    """The operands of `CALLS` as arrays, the same each time."""
    random = np.random.default_rng(7)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape)

    a = normal(4, 4) + 3 * np.eye(4)
    return {
        "x": normal(3, 4),
        "y": normal(3, 4),
        "r": normal(4),
        "c": normal(3, 1),
        "s": np.array(0.7),
        "p": random.uniform(0.2, 3, (3, 4)),
        "u": random.uniform(-0.9, 0.9, (3, 4)),
        "o": random.uniform(1.1, 3, (3, 4)),
        "h": random.uniform(0.05, 0.95, (3, 4)),
        "h2": random.uniform(0.05, 0.95, (3, 4)),
        "fixed": random.uniform(0.2, 3, (3, 4)),  # no gradient is asked for
        "n": np.array([[1.0, np.nan, np.inf], [-2.0, 0.5, -np.inf]]),
        "z": np.zeros((0, 4)),
        "b": normal(2, 3, 4),
        "b2": normal(2, 4, 5),
        "v": normal(5),
        "w": normal(5),
        "a": a,
        "spd": a @ a.T + np.eye(4),
        "m": random.random((3, 4)) < 0.5,
        "k": random.integers(0, 6, (3, 4)),
        "k2": random.integers(0, 6, (3, 4)),
        "k3": random.integers(1, 6, (3, 4)),
        "i": np.array([2, 0, 1, 2]),
        "ix": random.integers(0, 3, (2, 4)),
        "labels": np.array([1, 0, 3]),
        "sgn": np.sign(normal(3, 4)),
        "sgn3": np.array([1.0, -1.0, 1.0]),
        "e": normal(7, 5),
        "e4": normal(2, 8, 3, 3),
        "chan": normal(2, 4, 5),
        "seq": normal(2, 3, 10),
        "img": normal(2, 3, 8, 6),
        "vol": normal(1, 3, 5, 4, 6),
        "cols": normal(1, 12, 4),
        "grid": random.uniform(-1.2, 1.2, (2, 4, 5, 2)),
        "logs": np.log(random.dirichlet(np.ones(4), (6, 2))),
        "kernel1": normal(4, 3, 3),
        "kernel1t": normal(3, 4, 3),
        "kernel2": normal(4, 3, 3, 2),
        "kernel2t": normal(3, 4, 3, 2),
        "kernel3": normal(4, 3, 3, 2, 2),
        "kernel3t": normal(3, 2, 2, 2, 3),
        "q4": normal(2, 2, 3, 4),
        "k4": normal(2, 2, 3, 4),
        "v4": normal(2, 2, 3, 4),
    }


def names(ours: Any, theirs: Any) -> set[str]:
    """The names of the functions that both have."""
    found: set[str] = set()
    for name in dir(ours):
        value = getattr(ours, name)
        if not name.startswith("_") and callable(value) and not isinstance(value, (type, ModuleType)):
            found |= {name} if hasattr(theirs, name) else set()
    return found


def namespaces(library: Any) -> dict[str, Any]:
    """The modules for the letters in `CALLS`."""
    functional = library.nn.functional
    found = {"t": library, "F": functional, "L": library.linalg}
    if hasattr(library, "special"):
        found["S"] = library.special
    return found


_OURS, _THEIRS = namespaces(flow), namespaces(torch)


def _function(call: str) -> tuple[str, str]:
    """The letter and the name at the beginning of a call."""
    matched = re.match(r"([tFLS])\.(\w+)\(", call)
    assert matched is not None, call
    return matched[1], matched[2]


def _shared(call: str) -> bool:
    letter, name = _function(call)
    return letter in _OURS and hasattr(_OURS[letter], name)


FUNCTIONS: Final = [call for call in CALLS.split("\n") if call and _shared(call)]


# Functions whose methods are those of another operand than the first.
OTHER_ORDER: Final = ("where",)


def _as_methods() -> list[str]:
    """The calls of functions that are methods as well, made so, and in place where both have that form."""
    found: list[str] = []
    for call in FUNCTIONS:
        letter, name = _function(call)
        matched = re.match(rf"t\.{name}\((\w+)(?:, |(?=\)))(.*)$", call) if letter == "t" else None
        if matched is None or matched[1] not in operands() or name in OTHER_ORDER:
            continue
        if callable(getattr(flow.Tensor, name, None)) and hasattr(torch.Tensor, name):
            found.append(f"{matched[1]}.{name}({matched[2]}")
        in_place = f"{name}_"
        if callable(getattr(flow.Tensor, in_place, None)) and hasattr(torch.Tensor, in_place):
            found.append(f"{matched[1]}.clone().{in_place}({matched[2]}")
    return found


METHODS: Final = _as_methods()


def evaluated(
    call: str, library: Any, tensor: Callable[[Any], Any], with_gradients: bool = True
) -> tuple[list[Any], dict[str, Any]]:
    """The results, flattened, and the gradients of the operands for a weighted sum of those."""
    arrays = {name: operand for name, operand in operands().items() if re.search(rf"\b{name}\b", call)}
    given = {name: tensor(array) for name, array in arrays.items()}
    for name, value in given.items():
        if with_gradients and arrays[name].dtype.kind == "f" and name != "fixed":
            value.requires_grad_()
    results = list(_flattened(eval(call, {**namespaces(library), **given, "float": float})))
    total: Any = None
    random = np.random.default_rng(3)
    for result in results:
        if isinstance(result, library.Tensor) and result.requires_grad:
            term = (result * tensor(random.standard_normal(tuple(result.shape)))).sum()
            total = term if total is None else total + term
    if total is not None:
        total.backward()
    # None, where a result does not depend on an operand, is as good as zeros.
    zeros = {name: np.zeros(array.shape) for name, array in arrays.items() if given[name].requires_grad}
    return results, zeros | {
        name: value.grad.numpy(force=True) for name, value in given.items() if value.grad is not None
    }


def _flattened(result: Any) -> Any:
    if isinstance(result, (tuple, list)) and type(result).__name__ != "Size":
        for part in result:
            yield from _flattened(part)
    else:
        yield result


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, marks=pytest.mark.host) if "get_device" in call else call for call in FUNCTIONS + METHODS],
)
def test_results_and_gradients_agree(call: str) -> None:
    with_gradients = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected, expected_gradients = evaluated(call, torch, torch.tensor)
        except (RuntimeError, TypeError, ValueError) as error:
            with_gradients = "derivative" not in str(error)
            if with_gradients:
                # Calls that PyTorch refuses, such as a float result in an integer tensor, are refused here as well.
                with pytest.raises((RuntimeError, TypeError, ValueError)):
                    evaluated(call, flow, flow.tensor)
                return
            expected, expected_gradients = evaluated(call, torch, torch.tensor, with_gradients)
    found, gradients = evaluated(call, flow, flow.tensor, with_gradients)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            assert one == other or (tuple(one) == tuple(other))
            continue
        assert str(one.dtype).split(".")[-1] == str(other.dtype).split(".")[-1]
        assert tuple(one.shape) == tuple(other.shape)
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-6, atol=1e-9)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(
            gradient, expected_gradients[name], rtol=1e-6, atol=1e-8, err_msg=f"gradient of {name}"
        )


def _found(name: str) -> object:
    return getattr(flow, name, None)


def test_every_shared_function_is_called_or_accounted_for() -> None:
    called = {_function(call) for call in FUNCTIONS}
    # Functions of layers are those of nn.functional; in-place forms are methods, which `_as_methods` calls.
    called |= {("t", name) for letter, name in called if letter == "F" and _OURS["F"].__dict__[name] is _found(name)}
    called |= {("t", name) for name in in_place_functions()}
    accounted = {name for listed in ELSEWHERE.values() for name in listed.split()}
    missing = [
        f"{letter}.{name}"
        for letter, ours in _OURS.items()
        for name in sorted(names(ours, _THEIRS[letter]))
        if (letter, name) not in called and name not in accounted
    ]
    assert not missing, f"add a call to CALLS, or a reason to ELSEWHERE, for {' '.join(missing)}"
