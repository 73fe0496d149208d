"""Reads a file on one rank, and loads its content on all ranks."""

from __future__ import annotations

import os
from io import BytesIO
from typing import IO, Any, cast

import numpy as np

from vmflow.io import load
from vmflow.ops.creation.creation import tensor
from vmflow.tensors import Tensor

from .checkpoint import mapped
from .collectives import check_rank, sent_by_root, world
from .global_tensors import cut
from .placement import placement as Placement
from .process import get_rank, get_world_size
from .sbp import broadcast


def load_for_all(f: str | os.PathLike[str] | IO[bytes], map_location: Any, rank: int) -> Any:
    """Load a file of `rank` as `vmflow.load` does, on all ranks, with broadcast global tensors in place of tensors.

    For each tensor, `map_location` chooses a device; the global tensor is on each rank's device of the same type.

    Raises:
        OSError: on all ranks, if `rank` cannot read the file.
        ValueError: on all ranks, if there is no such rank, or the file is damaged.
    """
    rank = check_rank(rank)
    content, failure = b"", ""
    if get_rank() == rank:
        try:
            if isinstance(f, (str, os.PathLike)):
                with open(f, "rb") as file:
                    content = file.read()
            else:
                content = f.read()
        except (OSError, ValueError) as error:
            failure = str(error) or type(error).__name__
    failed, length = _sent([bool(failure), len(failure.encode() if failure else content)], rank)
    payload = np.frombuffer(failure.encode() if failure else content, np.uint8)
    given = payload if get_rank() == rank else np.zeros(length, np.uint8)
    whole = bytes(_from(rank, tensor(given)).numpy())
    if failed:
        raise OSError(f"load: rank {rank} could not read the file: {whole.decode()}")

    def spread(of: Tensor, keys: str) -> Tensor:
        everywhere = Placement.all(of.device.type)
        return cut("load", of.to(everywhere.device), None, everywhere, (broadcast,))

    return mapped(load(BytesIO(whole), map_location), spread)


def _sent(numbers: list[int], rank: int) -> list[int]:
    return cast("list[int]", _from(rank, tensor([int(number) for number in numbers])).tolist())


def _from(rank: int, given: Tensor) -> Tensor:
    return sent_by_root(given, world(), rank) if get_world_size() > 1 else given
