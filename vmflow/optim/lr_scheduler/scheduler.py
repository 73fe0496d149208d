"""`LRScheduler`: the base class of all learning rate schedulers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from vmflow.autograd import no_grad
from vmflow.instructions.blob import Storage
from vmflow.optim.optimizer import Optimizer
from vmflow.tensors import Tensor

# PyTorch's name and OneFlow's name of the same argument: a scheduler's `__init__` declares one, callers use either.
_NAMES: Final = ("last_epoch", "last_step")


def with_both_names(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap a scheduler's `__init__` to take `last_epoch` also as `last_step`, and vice versa, and OneFlow's `verbose`.

    Raises:
        TypeError: if a call of the result gives both `last_epoch` and `last_step`.
    """
    if not isinstance(init, FunctionType):
        return init
    code = init.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    variable = bool(code.co_flags & _VARIABLE)

    @functools.wraps(init)
    def named(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        if "verbose" in kwargs and "verbose" not in own:
            self.verbose = bool(kwargs.pop("verbose"))
        for mine, other in (_NAMES, _NAMES[::-1]):
            if other in kwargs and other not in own and (mine in own or (variable and mine == "last_epoch")):
                if mine in kwargs:
                    raise TypeError(f"{type(self).__name__}: last_epoch and last_step are one; give one of them")
                kwargs[mine] = kwargs.pop(other)
        init(self, *args, **kwargs)

    return named


_VARIABLE: Final = 0x08  # inspect.CO_VARKEYWORDS, the code flag of functions that take ``**kwargs``


class _Written(NamedTuple):
    """A learning rate that a scheduler has written into a tensor, known without waiting for the tensor.

    Attributes:
        tensor: kept alive, so that no other tensor has its id.
        storage, version: the tensor's memory, and its version right after the writing.
        rate: the rate.
    """

    tensor: Tensor
    storage: Storage
    version: int
    rate: float

    def is_overwritten(self) -> bool:
        """Whether the tensor's value may be another one by now."""
        storage = self.tensor._blob.storage
        return storage is not self.storage or storage.version != self.version


# For each optimizer, the rates that one of its schedulers has written last, by the tensors' ids.
_WRITTEN: Final[WeakKeyDictionary[Optimizer, dict[int, _Written]]] = WeakKeyDictionary()


class LRScheduler:
    """The base of schedulers, which set the learning rates of an optimizer's parameter groups at each `step`.

    Subclasses define `get_lr`, or `rate_at`, or both.  When starting, this constructor notes the learning rate of each
    group in the group as "initial_lr", unless the group has one.  A learning rate that is a tensor is changed in place;
    a step does not wait for the tensor's value if a scheduler of the optimizer has changed it last.

    To resume with `last_epoch`, load the optimizer's state dict first: its rates are those of the epoch that begins,
    and schedulers that multiply the rates in each epoch keep them in the constructor.  As in PyTorch, `StepLR`,
    `MultiStepLR` and `ConstantLR` multiply the rates in the constructor if they do so at the beginning of that epoch.

    Args:
        optimizer: the optimizer whose learning rates to set.
        last_epoch: the number of the last epoch when resuming, -1 when starting.  The constructor begins the next
            epoch.  Schedulers with this argument take it by OneFlow's name `last_step` as well; all take OneFlow's
            `verbose`: whether to print the rates they set.

    Attributes:
        base_lrs: the initial learning rates, one per group; of `CyclicLR`, the lower bounds.
        last_epoch: the number of the present epoch, counted by `step`; also called `last_step`.

    Raises:
        TypeError: if `optimizer` is no optimizer, or `last_epoch` no integer.
        KeyError: when resuming, if a group of the optimizer has no "initial_lr".
        NotImplementedError: if a subclass defines neither `get_lr` nor `rate_at`.

    Example:
        >>> class Halving(flow.optim.lr_scheduler.LRScheduler):
        ...     def rate_at(self, epoch, base, group=0):
        ...         return base / 2**epoch
        >>> schedule = Halving(flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0))
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    # The names of the attributes that `state_dict` leaves out, besides `verbose` and callables.
    unsaved: tuple[str, ...] = ("optimizer",)
    verbose: bool = False

    # Whether a `SequentialLR` begins the scheduler with the present learning rates, not the initial ones.
    begins_at_present: bool = False

    # Whether the step in progress is the constructor's or that of `restart`, in which most schedulers keep the rates.
    # PyTorch's name, for subclasses written for PyTorch.
    _is_initial: bool = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__init__" in cls.__dict__:
            cls.__init__ = with_both_names(cls.__init__)  # type: ignore[method-assign]

    @with_both_names
    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(type(self).__name__, optimizer)
        if not isinstance(last_epoch, int):
            raise TypeError(f"{type(self).__name__}: last_epoch must be an integer, got {last_epoch!r}")
        self.optimizer = optimizer
        for position, group in enumerate(optimizer.param_groups):
            if "initial_lr" in group:
                continue
            if last_epoch != -1:
                raise KeyError(
                    f"{type(self).__name__}: group {position} has no 'initial_lr', which resuming from epoch "
                    f"{last_epoch} needs; load the optimizer's state dict first"
                )
            group["initial_lr"] = number(group["lr"])
        self.base_lrs: list[float] = [number(group["initial_lr"]) for group in optimizer.param_groups]
        self._begin_behind(last_epoch)

    @property
    def last_step(self) -> int:
        """OneFlow's name of `last_epoch`."""
        return self.last_epoch

    @last_step.setter
    def last_step(self, number: int) -> None:
        self.last_epoch = number

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        """Compute the learning rate of an epoch from the arguments alone, as if nothing else changed the rate.

        Args:
            epoch: the number of the epoch, from 0.
            base: the initial learning rate.
            group: the number of the parameter group, for schedulers that treat groups differently.

        Raises:
            NotImplementedError: for schedulers that know no rate in advance.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no rate_at(), so no rate is known in advance")

    def get_lr(self) -> list[float]:
        """Compute for `step` the learning rates of epoch `last_epoch`, one per parameter group.

        The base class calls `rate_at`.  Schedulers that override this method to multiply the present rates can be
        combined with other changes of the rates.
        """
        return self.rates_at(self.last_epoch)

    def rates_at(self, epoch: int) -> list[float]:
        """The learning rates of all parameter groups in an epoch; raises NotImplementedError if `rate_at` does."""
        return [self.rate_at(epoch, base, group) for group, base in enumerate(self.base_lrs)]

    def get_last_lr(self) -> list[float]:
        """The learning rates after this scheduler's last step, one per group."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Begin the next epoch, or the epoch of number `epoch`, and set its learning rates.

        Raises:
            NotImplementedError: if `epoch` is given, and the scheduler does not define `rate_at`.
        """
        if epoch is None:
            self.last_epoch += 1
            self.set_rates(self.get_lr())
        else:
            rates = self.rates_at(epoch)
            self.last_epoch = epoch
            self.set_rates(rates)

    def restart(self) -> None:
        """Begin epoch 0 again; the caller must have set the optimizer's rates to the initial rates before."""
        self._begin_behind(-1)

    def _begin_behind(self, last_epoch: int) -> None:
        """Take the first step, into the epoch behind `last_epoch`."""
        self.last_epoch = last_epoch
        self._is_initial = True
        try:
            self.step()
        finally:
            del self._is_initial

    def set_rates(self, rates: Sequence[float]) -> None:
        """Set the learning rate of each parameter group, and print the rates if `verbose`."""
        written: list[tuple[Tensor, float]] = []
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                with no_grad():
                    group["lr"].fill_(rate)
                written.append((group["lr"], rate))
            else:
                group["lr"] = rate
        _WRITTEN[self.optimizer] = {
            id(lr): _Written(lr, lr._blob.storage, lr._blob.storage.version, rate) for lr, rate in written
        }
        self._last_lr = list(rates)
        if self.verbose:
            for position, rate in enumerate(rates):
                print(f"{type(self).__name__}: epoch {self.last_epoch}, learning rate of group {position}: {rate:.4e}")

    def present(self) -> list[float]:
        """The groups' present learning rates; waits for the value of a tensor that no scheduler has written last."""
        written = _WRITTEN.get(self.optimizer, {})
        found: list[float] = []
        for group in self.optimizer.param_groups:
            entry = written.get(id(group["lr"]))
            found.append(number(group["lr"]) if entry is None or entry.is_overwritten() else entry.rate)
        return found

    def scaled(self, factor: float) -> list[float]:
        """The groups' present learning rates times a factor."""
        return [rate * factor for rate in self.present()]

    def state_dict(self) -> dict[str, Any]:
        """All attributes for `load_state_dict` but `verbose`, `unsaved` ones, callables and lists with callables."""
        left_out = (*self.unsaved, "verbose")
        return {key: value for key, value in self.__dict__.items() if key not in left_out and not _calls(value)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the state of another scheduler.

        This does not set the optimizer's learning rates: load the optimizer's state dict, too.
        """
        self.__dict__.update(state_dict)


def check_optimizer(name: str, optimizer: Any) -> None:
    """Raise TypeError, with the scheduler's `name`, unless `optimizer` is an `Optimizer`."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{name}: expected an optimizer, got {type(optimizer).__name__}")


def number(lr: float | Tensor) -> float:
    """Return a learning rate as a number; waits for the value of a tensor."""
    return float(lr.item()) if isinstance(lr, Tensor) else lr


def per_group(name: str, optimizer: Optimizer, noun: str, value: Any) -> list[Any]:
    """Return a list with one value for each parameter group: the items of a list or tuple, or `value` repeated.

    Args:
        name: the scheduler's name, for errors.
        optimizer: the optimizer with the groups.
        noun: the plural noun for the values, for errors.
        value: a list or tuple of values, or the value of all groups.

    Raises:
        TypeError: if `optimizer` is no optimizer.
        ValueError: if the list has not as many values as there are groups.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> flow.optim.swa_utils.per_group("SWALR", optimizer, "rates", 0.5)
        [0.5]
    """
    check_optimizer(name, optimizer)
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
    if len(values) != groups:
        raise ValueError(f"{name}: got {len(values)} {noun} for {groups} groups")
    return values


def _calls(value: Any) -> bool:
    """Whether an attribute is a callable or a list with callables, which `state_dict` leaves out."""
    return callable(value) or (isinstance(value, list) and any([callable(item) for item in value]))
