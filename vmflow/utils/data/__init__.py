"""Datasets, samplers, and `DataLoader`, under PyTorch's names, for plain loops and for coroutines.

loader = flow.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
for images, labels in loader: ...
async for images, labels in loader: ...         # the event loop goes on meanwhile
"""

from . import dataloader as dataloader, distributed as distributed
from .collate import default_collate as default_collate, default_convert as default_convert
from .dataset import (
    ChainDataset as ChainDataset,
    ConcatDataset as ConcatDataset,
    Dataset as Dataset,
    IterableDataset as IterableDataset,
    StackDataset as StackDataset,
    Subset as Subset,
    TensorDataset as TensorDataset,
    random_split as random_split,
)
from .fetch import WorkerInfo as WorkerInfo, get_worker_info as get_worker_info
from .loader import DataLoader as DataLoader
from .sampler import (
    BatchSampler as BatchSampler,
    DistributedSampler as DistributedSampler,
    RandomSampler as RandomSampler,
    Sampler as Sampler,
    SequentialSampler as SequentialSampler,
    SubsetRandomSampler as SubsetRandomSampler,
    WeightedRandomSampler as WeightedRandomSampler,
)
