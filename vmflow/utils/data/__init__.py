"""Datasets, samplers, and `DataLoader`, under PyTorch's names, for plain loops and for coroutines.

loader = flow.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
for images, labels in loader: ...
async for images, labels in loader: ...         # the event loop goes on meanwhile
"""

from __future__ import annotations

from .collate import default_collate as default_collate
from .collate import default_convert as default_convert
from .dataset import ChainDataset as ChainDataset
from .dataset import ConcatDataset as ConcatDataset
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .dataset import StackDataset as StackDataset
from .dataset import Subset as Subset
from .dataset import TensorDataset as TensorDataset
from .dataset import random_split as random_split
from .fetch import WorkerInfo as WorkerInfo
from .fetch import get_worker_info as get_worker_info
from .loader import DataLoader as DataLoader
from .sampler import BatchSampler as BatchSampler
from .sampler import DistributedSampler as DistributedSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import SubsetRandomSampler as SubsetRandomSampler
from .sampler import WeightedRandomSampler as WeightedRandomSampler
