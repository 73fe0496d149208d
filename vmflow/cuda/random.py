"""The random numbers of CUDA devices, which are those of the CPU.

A generator counts what it has given away, and a number is a function of the seed and its index.  So all devices draw
from the process-wide generator, and draw the same numbers: these functions are about that generator, whichever device
they name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vmflow import random as _random
from vmflow.devices import device as Device

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def manual_seed(seed: int) -> None:
    """Seed the process-wide generator; see `vmflow.manual_seed`."""
    _random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """The same."""
    _random.manual_seed(seed)


def seed() -> None:
    """Seed the process-wide generator at random."""
    _random.seed()


def initial_seed() -> int:
    """The seed of the process-wide generator."""
    return _random.initial_seed()


def get_rng_state(device: Device | str | int | None = None) -> Tensor:
    """The state of the process-wide generator: a tensor of bytes on the CPU."""
    return _random.get_rng_state()


def set_rng_state(new_state: Tensor, device: Device | str | int | None = None) -> None:
    """Put the process-wide generator into a state that `get_rng_state` has returned."""
    _random.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The state of the generator, once: there is one for all devices."""
    return [_random.get_rng_state()]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Put the generator into the first of these states."""
    for state in list(new_states)[:1]:
        _random.set_rng_state(state)
