"""``vmflow.utils.data.distributed``: the module in which PyTorch has the sampler of one rank."""

from __future__ import annotations

from .sampler import DistributedSampler as DistributedSampler
