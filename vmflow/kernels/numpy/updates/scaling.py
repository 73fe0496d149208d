"""The scale of a loss: gradients divided by it, and how it adapts."""

from __future__ import annotations

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import AdaptScale
from vmflow.kernels.updates import UpdateKernel, builds_update


@builds_update("unscale")
def _unscale() -> UpdateKernel:
    return _divide


def _divide(inputs: list[Array], outputs: list[Array]) -> None:
    found, *gradients = outputs
    inverse = 1.0 / float(inputs[0])
    finite = True
    for gradient in gradients:
        np.multiply(gradient, np.asarray(inverse, gradient.dtype), out=gradient)
        finite = finite and bool(np.isfinite(gradient).all())
    found[...] = not finite


@builds_update("set_scale")
def _set_scale() -> UpdateKernel:
    return _set


def _set(inputs: list[Array], outputs: list[Array]) -> None:
    outputs[0][...] = inputs[0]


@builds_update("adapt_scale")
def _adapt_scale(settings: AdaptScale) -> UpdateKernel:
    growth, backoff, interval = settings

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        scale, tracker = outputs
        if any([bool(found) for found in inputs]):
            scale *= backoff
            tracker[...] = 0
            return
        tracker += 1
        if tracker >= interval:
            grown = float(scale) * growth
            if np.isfinite(np.float32(grown)):
                scale[...] = grown
            tracker[...] = 0

    return kernel
