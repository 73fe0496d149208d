"""The default generator under PyTorch's names for CUDA.

A generator's sequence does not depend on the device, so one default generator serves the CPU and all CUDA devices.
The functions here seed, read and set it, also where CUDA is not available.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vmflow import random as _random
from vmflow.devices import cuda_device, device as Device

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def manual_seed(seed: int) -> None:
    """Seed the default generator; see `vmflow.manual_seed`.

    Raises:
        TypeError: if the seed is no integer.
        ValueError: if the seed does not fit into 64 bits.

    Example:
        >>> flow.cuda.manual_seed(17)
        >>> flow.cuda.initial_seed()
        17
    """
    _random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the default generator, as `manual_seed` does.

    Raises:
        TypeError, ValueError: as `manual_seed`.

    Example:
        >>> flow.cuda.manual_seed_all(17)
        >>> flow.cuda.initial_seed()
        17
    """
    _random.manual_seed(seed)


def seed() -> None:
    """Seed the default generator at random.

    Example:
        >>> flow.cuda.seed()
    """
    _random.seed()


def initial_seed() -> int:
    """The seed of the default generator.

    Example:
        >>> flow.cuda.manual_seed(17)
        >>> flow.cuda.initial_seed()
        17
    """
    return _random.initial_seed()


def get_rng_state(device: Device | str | int | None = None) -> Tensor:
    """The state of the default generator, the same for each CUDA `device`: a vector of 32 bytes on the CPU.

    Raises:
        ValueError: if `device` is no CUDA device.

    Example:
        >>> flow.cuda.get_rng_state().shape
        vmflow.Size([32])
    """
    cuda_device(device)
    return _random.get_rng_state()


def set_rng_state(new_state: Tensor, device: Device | str | int | None = None) -> None:
    """Put the default generator into a state that `get_rng_state` has returned, a vector of bytes.

    Args:
        new_state: the state.
        device: a CUDA device, only checked.

    Raises:
        TypeError: if `new_state` is no tensor.
        ValueError: if `new_state` is no state, or a state of an earlier version, or `device` is no CUDA device.

    Example:
        >>> flow.cuda.set_rng_state(flow.cuda.get_rng_state())
    """
    cuda_device(device)
    _random.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The state of the default generator, as a list of one vector of bytes.

    Example:
        >>> len(flow.cuda.get_rng_state_all())
        1
    """
    return [_random.get_rng_state()]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Put the default generator into the first state of `new_states`, if there is one; ignore the others.

    Raises:
        TypeError: if the first element is no tensor.
        ValueError: if the first element is no state, or a state of an earlier version.

    Example:
        >>> flow.cuda.set_rng_state_all(flow.cuda.get_rng_state_all())
    """
    for state in list(new_states)[:1]:
        _random.set_rng_state(state)
