"""The autocast class of each op: the dtype in which the op computes where autocast is on.

The names are those of the op table, and of functions of several ops that autocast treats as a single op (see
`vmflow.ops.autocasting`).  Most ops have PyTorch's class on the CPU or, if PyTorch has none there, on GPUs.  Other
functions of several ops, such as `einsum`, have no class: autocast acts on the ops that they call.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class CastTo(enum.Enum):
    """An op's autocast class: the dtype that autocast casts the op's operands of float32 or less to."""

    LOWER = "the lower precision"
    FLOAT32 = "float32"
    WIDEST = "the widest dtype among them"
    AS_GIVEN = "nothing"


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Matrix products, convolutions and the like: 16-bit factors are exact enough, and models spend most of their time here.
LOWER: Final = _names("""
    conv1d conv1d_input_gradient conv1d_with_columns conv2d conv2d_input_gradient conv2d_with_columns conv3d
    conv3d_input_gradient conv3d_with_columns gru_layer linear lstm_layer matmul rnn_layer
    scaled_dot_product_attention

    addbmm addmm addmv addr attention_with_weights baddbmm conv_transpose1d conv_transpose2d conv_transpose3d prelu
    vecdot
""")

# Mostly ops with small differences of large numbers, large ranges or long sums, which 16 bits would spoil; and Fourier
# transforms, which have no 16-bit kernels.
FLOAT32: Final = _names("""
    acos adaptive_avg_pool3d adaptive_max_pool3d asin avg_pool3d binary_cross_entropy
    binary_cross_entropy_with_logits cholesky cosh cross_entropy ctc_loss cumprod cumsum det eig eigh erfinv exp
    expm1 fft inv irfft layer_norm log log10 log1p log2 log_softmax lu_factor max_pool3d max_pool3d_with_indices
    mean nll_loss norm pad_borders pinv pow pow_scalar prod qr reciprocal rfft rsqrt sinh slogdet softmax softplus
    solve solve_triangular square sum svd svdvals tan view_as_complex

    cdist cholesky_inverse cholesky_solve combined_margin completed complex cond cosine_embedding_loss
    cosine_similarity deform_conv2d fractional_max_pool2d fractional_max_pool3d gaussian_nll_loss grid_sample halved
    hinge_embedding_loss householder_product huber_loss istft kl_div l1_loss lstsq margin_ranking_loss matrix_rank
    max_unpool1d max_unpool2d max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss
    multilabel_soft_margin_loss mvlgamma nanquantile normalized pdist poisson_nll_loss polar quantile
    roi_align smooth_l1_loss soft_margin_loss stft transformed triplet_margin_loss
""")

# Ops whose operands must have one dtype: autocast casts them to the widest among their dtypes.
WIDEST: Final = _names("""
    cat heaviside histogram index_put scatter scatter_reduce where

    bilinear heaviside index_add index_copy index_reduce isclose ldexp lerp masked_scatter put
""")

# Ops whose operands are not cast: most take a single floating-point tensor, or promote dtypes by themselves.
# Elementwise ops that no set lists have this class, too, and so have most ops of backward passes, during which autocast
# is off.
AS_GIVEN: Final = _names("""
    absolute_difference adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d all amax
    amin any arange argmax argmin argsort as_strided avg_pool1d avg_pool2d batch_norm batch_norm_inference bernoulli
    bincount bincount_length cast checked_offsets col2im copy_ count_nonzero cummax cummin diagonal distinct dropout
    element_of_rank elu embedding embedding_limit_norms empty expand exponential exponential_linear eye fill flip
    frequencies fused gather gelu_by_tanh hardshrink hardsigmoid hardswish hardtanh huber im2col index
    index_add_to_zeros isin largest_of_bag leaky_relu linspace logcumsumexp logsigmoid matrix_exp max_pool1d
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices mish mode multinomial nonzero one_hot orthogonal_ pad
    permute pivots_to_permutation plane_gather plane_scatter poisson polygamma quick_gelu rand randint randn
    randperm recurrence repeat repeated_places repetitions resample reshape respread roll scatter_diagonal
    scatter_slices searchsorted slice smooth_l1 softshrink softsign square_relu squared_difference standard_gamma
    strided_get strided_put tanhshrink threshold to_device topk triangle triangle_places trunc_normal_ unfold
    view_as_real weighted_half
""")

CLASSES: Final[Mapping[str, CastTo]] = {
    **dict.fromkeys(LOWER, CastTo.LOWER),
    **dict.fromkeys(FLOAT32, CastTo.FLOAT32),
    **dict.fromkeys(WIDEST, CastTo.WIDEST),
    **dict.fromkeys(AS_GIVEN, CastTo.AS_GIVEN),
}
