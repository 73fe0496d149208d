"""Neural networks: `Module`, layers, losses, and functions in `functional`; `Graph`, which compiles them."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import functional as functional, init as init, qat as qat, utils as utils
from .activation_layers import (
    CELU as CELU,
    ELU as ELU,
    GELU as GELU,
    GLU as GLU,
    SELU as SELU,
    Hardshrink as Hardshrink,
    Hardsigmoid as Hardsigmoid,
    Hardswish as Hardswish,
    Hardtanh as Hardtanh,
    LeakyReLU as LeakyReLU,
    LogSigmoid as LogSigmoid,
    LogSoftmax as LogSoftmax,
    Mish as Mish,
    PReLU as PReLU,
    QuickGELU as QuickGELU,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    RReLU as RReLU,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    Softmax as Softmax,
    Softmax2d as Softmax2d,
    Softmin as Softmin,
    Softplus as Softplus,
    Softshrink as Softshrink,
    Softsign as Softsign,
    SquareReLU as SquareReLU,
    Tanh as Tanh,
    Tanhshrink as Tanhshrink,
    Threshold as Threshold,
)
from .attention import MultiheadAttention as MultiheadAttention
from .containers import (
    ModuleDict as ModuleDict,
    ModuleList as ModuleList,
    ParameterDict as ParameterDict,
    ParameterList as ParameterList,
    Sequential as Sequential,
)
from .convolution_layers import (
    Conv1d as Conv1d,
    Conv2d as Conv2d,
    Conv3d as Conv3d,
    ConvTranspose1d as ConvTranspose1d,
    ConvTranspose2d as ConvTranspose2d,
    ConvTranspose3d as ConvTranspose3d,
    Fold as Fold,
    Unfold as Unfold,
)
from .distance_layers import (
    CosineSimilarity as CosineSimilarity,
    PairwiseDistance as PairwiseDistance,
)
from .dropout_layers import (
    AlphaDropout as AlphaDropout,
    Dropout as Dropout,
    Dropout1d as Dropout1d,
    Dropout2d as Dropout2d,
    Dropout3d as Dropout3d,
    FeatureAlphaDropout as FeatureAlphaDropout,
)
from .function_layers import Flatten as Flatten, Identity as Identity, Unflatten as Unflatten
from .layers import Bilinear as Bilinear, Embedding as Embedding, EmbeddingBag as EmbeddingBag, Linear as Linear
from .loss_layers import (
    BCELoss as BCELoss,
    BCEWithLogitsLoss as BCEWithLogitsLoss,
    CrossEntropyLoss as CrossEntropyLoss,
    CTCLoss as CTCLoss,
    GaussianNLLLoss as GaussianNLLLoss,
    HuberLoss as HuberLoss,
    KLDivLoss as KLDivLoss,
    L1Loss as L1Loss,
    MSELoss as MSELoss,
    NLLLoss as NLLLoss,
    NLLLoss2d as NLLLoss2d,
    PoissonNLLLoss as PoissonNLLLoss,
    SmoothL1Loss as SmoothL1Loss,
)
from .margin_loss_layers import (
    CombinedMarginLoss as CombinedMarginLoss,
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    HingeEmbeddingLoss as HingeEmbeddingLoss,
    MarginRankingLoss as MarginRankingLoss,
    MultiLabelMarginLoss as MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss,
    MultiMarginLoss as MultiMarginLoss,
    SoftMarginLoss as SoftMarginLoss,
    TripletMarginLoss as TripletMarginLoss,
    TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss,
)
from .module import Module as Module
from .normalization_layers import (
    BatchNorm1d as BatchNorm1d,
    BatchNorm2d as BatchNorm2d,
    BatchNorm3d as BatchNorm3d,
    GroupNorm as GroupNorm,
    InstanceNorm1d as InstanceNorm1d,
    InstanceNorm2d as InstanceNorm2d,
    InstanceNorm3d as InstanceNorm3d,
    LayerNorm as LayerNorm,
    LocalResponseNorm as LocalResponseNorm,
    RMSNorm as RMSNorm,
    SyncBatchNorm as SyncBatchNorm,
)
from .padding_layers import (
    CircularPad1d as CircularPad1d,
    CircularPad2d as CircularPad2d,
    CircularPad3d as CircularPad3d,
    ConstantPad1d as ConstantPad1d,
    ConstantPad2d as ConstantPad2d,
    ConstantPad3d as ConstantPad3d,
    ReflectionPad1d as ReflectionPad1d,
    ReflectionPad2d as ReflectionPad2d,
    ReflectionPad3d as ReflectionPad3d,
    ReplicationPad1d as ReplicationPad1d,
    ReplicationPad2d as ReplicationPad2d,
    ReplicationPad3d as ReplicationPad3d,
    ZeroPad1d as ZeroPad1d,
    ZeroPad2d as ZeroPad2d,
    ZeroPad3d as ZeroPad3d,
)
from .parameter import (
    Buffer as Buffer,
    Parameter as Parameter,
    UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter,
)
from .pooling_layers import (
    AdaptiveAvgPool1d as AdaptiveAvgPool1d,
    AdaptiveAvgPool2d as AdaptiveAvgPool2d,
    AdaptiveAvgPool3d as AdaptiveAvgPool3d,
    AdaptiveMaxPool1d as AdaptiveMaxPool1d,
    AdaptiveMaxPool2d as AdaptiveMaxPool2d,
    AdaptiveMaxPool3d as AdaptiveMaxPool3d,
    AvgPool1d as AvgPool1d,
    AvgPool2d as AvgPool2d,
    AvgPool3d as AvgPool3d,
    FractionalMaxPool2d as FractionalMaxPool2d,
    FractionalMaxPool3d as FractionalMaxPool3d,
    LPPool1d as LPPool1d,
    LPPool2d as LPPool2d,
    LPPool3d as LPPool3d,
    MaxPool1d as MaxPool1d,
    MaxPool2d as MaxPool2d,
    MaxPool3d as MaxPool3d,
    MaxUnpool1d as MaxUnpool1d,
    MaxUnpool2d as MaxUnpool2d,
    MaxUnpool3d as MaxUnpool3d,
)
from .qat import (
    QatConv1d as QatConv1d,
    QatConv2d as QatConv2d,
    QatConv3d as QatConv3d,
    QatLinear as QatLinear,
)
from .quantization_layers import (
    FakeQuantization as FakeQuantization,
    MinMaxObserver as MinMaxObserver,
    MovingAverageMinMaxObserver as MovingAverageMinMaxObserver,
    Quantization as Quantization,
)
from .recurrent import (
    GRU as GRU,
    LSTM as LSTM,
    RNN as RNN,
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    RNNBase as RNNBase,
    RNNCell as RNNCell,
    RNNCellBase as RNNCellBase,
)
from .resampling_layers import (
    ChannelShuffle as ChannelShuffle,
    PixelShuffle as PixelShuffle,
    PixelUnshuffle as PixelUnshuffle,
    Upsample as Upsample,
    UpsamplingBilinear2d as UpsamplingBilinear2d,
    UpsamplingNearest2d as UpsamplingNearest2d,
)
from .transformer import (
    Transformer as Transformer,
    TransformerDecoder as TransformerDecoder,
    TransformerDecoderLayer as TransformerDecoderLayer,
    TransformerEncoder as TransformerEncoder,
    TransformerEncoderLayer as TransformerEncoderLayer,
)

if _TYPE_CHECKING:
    from vmflow.graph_mode.graph import Graph as Graph

    from . import modules as modules, parallel as parallel
    from .adaptive_softmax import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
    from .lazy_layers import (
        LazyBatchNorm1d as LazyBatchNorm1d,
        LazyBatchNorm2d as LazyBatchNorm2d,
        LazyBatchNorm3d as LazyBatchNorm3d,
        LazyConv1d as LazyConv1d,
        LazyConv2d as LazyConv2d,
        LazyConv3d as LazyConv3d,
        LazyConvTranspose1d as LazyConvTranspose1d,
        LazyConvTranspose2d as LazyConvTranspose2d,
        LazyConvTranspose3d as LazyConvTranspose3d,
        LazyInstanceNorm1d as LazyInstanceNorm1d,
        LazyInstanceNorm2d as LazyInstanceNorm2d,
        LazyInstanceNorm3d as LazyInstanceNorm3d,
        LazyLinear as LazyLinear,
    )


def __getattr__(name: str) -> object:
    # `vmflow.graph_mode` imports many other modules, so it is imported at the first use of `Graph`.
    if name in ("Graph", "graph"):
        graphs = _import_module("vmflow.graph_mode")
        return graphs.Graph if name == "Graph" else graphs
    # These modules are imported at their first use: `parallel` imports vmflow.distributed, and few programs use
    # `modules`.
    if name in ("modules", "parallel"):
        return _import_module(f".{name}", __name__)
    if name == "AdaptiveLogSoftmaxWithLoss":
        return _import_module(".adaptive_softmax", __name__).AdaptiveLogSoftmaxWithLoss
    if name.startswith("Lazy"):
        layer: object = getattr(_import_module(".lazy_layers", __name__), name, None)
        if layer is not None:
            return layer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    late = ["AdaptiveLogSoftmaxWithLoss", "Graph", "LazyLinear", "graph", "modules", "parallel"]
    layers = ("BatchNorm", "Conv", "ConvTranspose", "InstanceNorm")
    return sorted([*globals(), *late, *[f"Lazy{layer}{rank}d" for layer in layers for rank in (1, 2, 3)]])
