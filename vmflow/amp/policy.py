"""Which ops compute in the lower precision, which in float32, and which in the widest dtype of their operands.

By the names in the op table; an op that is in none of the lists takes what it is given, and promotes as always.  Ops
that are made of others, such as `addmm` or `mse_loss`, follow theirs.
"""

from __future__ import annotations

from typing import Final

# Few bits of each factor are enough, and most of the time goes here.
LOWER: Final = frozenset(
    {
        "conv1d",
        "conv1d_with_columns",
        "conv2d",
        "conv2d_with_columns",
        "conv3d",
        "conv3d_with_columns",
        "linear",
        "matmul",
        "scaled_dot_product_attention",
    }
)

# Small differences of large numbers, large ranges, and long sums.
FLOAT32: Final = frozenset(
    {
        "acos",
        "asin",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cosh",
        "cross_entropy",
        "ctc_loss",
        "cumprod",
        "cumsum",
        "det",
        "exp",
        "expm1",
        "inv",
        "layer_norm",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_softmax",
        "mean",
        "nll_loss",
        "pow",
        "pow_scalar",
        "prod",
        "reciprocal",
        "rsqrt",
        "sinh",
        "softmax",
        "solve",
        "square",
        "sum",
        "tan",
    }
)

# They want one dtype for all.
WIDEST: Final = frozenset({"cat", "index_put", "scatter", "where"})
