"""``vmflow.utils.data.dataloader``: the module in which PyTorch has the loader and its functions."""

from __future__ import annotations

from .collate import default_collate as default_collate, default_convert as default_convert
from .fetch import get_worker_info as get_worker_info
from .loader import DataLoader as DataLoader
