"""Global tensors: a shape of the whole, a spread over ranks, and this rank's part.

A global tensor is a `Tensor` whose meta has a `Spread` and whose storage has the part, a local tensor.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from vmflow.autograd.function import Function
from vmflow.context import MODE, Mode
from vmflow.dtypes import ALL, int64
from vmflow.instructions.blob import Blob, Storage, TensorMeta
from vmflow.ops.copying import zeros_of
from vmflow.ops.creation.creation import tensor as new
from vmflow.tensor_fields import blob_of, meta_of, new_tensor
from vmflow.tensors import Tensor

from .boxing import boxed
from .collectives import gathered, sent_by_root
from .placement import placement as Placement
from .process import current_process
from .sbp import Sbp, broadcast, nd_sbp_of, partial_sum
from .spread import Shape, Spread, asked_meta, check_sbp, global_meta, local_meta, spread as spread_of


@final
class GlobalStorage(Storage):
    """Stands for the memory of a global tensor and its views.

    Args:
        part: of this rank.
        moved: see the attributes.

    Attributes:
        parts: this rank's parts of the tensor and of its views; a blob's offset is the index of its part.
        whole: by index, whether a part has all elements of the first one in order, so that any reshape is a view.
        views: by the index of the viewed part, the view's op and its attributes: the index of the view's part, and the
            view's meta.
        moved: whether the tensor is a view whose parts were exchanged or copied, and share no memory with its base.
    """

    def __init__(self, part: Tensor, moved: bool = False) -> None:
        super().__init__()
        self.parts = [part]
        self.whole = [True]
        self.views: dict[Hashable, tuple[int, TensorMeta]] = {}
        self.moved = moved

    def settled(self) -> bool:
        """False: only the storages of the parts have values."""
        return False


def made(part: Tensor, of: TensorMeta, moved: bool = False) -> Tensor:
    """The global tensor of this meta, of which this rank has `part`; for `moved` see `GlobalStorage`."""
    return new_tensor(Blob(GlobalStorage(part, moved), of), None)


def storage_of(tensor: Tensor) -> GlobalStorage:
    """The storage of a global tensor."""
    storage = blob_of(tensor).storage
    assert isinstance(storage, GlobalStorage)
    return storage


def part_of(tensor: Tensor) -> Tensor:
    """This rank's part of a global tensor."""
    return part_in(blob_of(tensor))


def part_in(blob: Blob) -> Tensor:
    """This rank's part of a global tensor's blob."""
    storage = blob.storage
    assert isinstance(storage, GlobalStorage)
    return storage.parts[blob.offset]


def updated_part(name: str, tensor: Tensor) -> Tensor:
    """This rank's part of a global tensor that an update reads or changes element by element.

    Raises:
        RuntimeError: for a partial sum, whose summands would each get the change.
    """
    spread = meta_of(tensor).spread
    if partial_sum in spread.sbp:
        raise RuntimeError(f"{name}: a partial sum cannot be updated: {spread!r}; use .to_global(sbp=...) before")
    return part_of(tensor)


def mode_of_parts(mode: Mode) -> Mode:
    """The mode in which ops run on parts: without autograd and autocast, which have seen the global op already."""
    if not mode.grad and mode.autocast is None:
        return mode
    return mode.replace(grad=False, autocast=None)


@contextmanager
def local_mode() -> Iterator[None]:
    """A block in which ops run in the mode of parts."""
    mode = MODE.get()
    MODE.set(mode_of_parts(mode))
    try:
        yield
    finally:
        MODE.set(mode)


# From and to local tensors


def to_global(
    tensor: Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    grad_sbp: Sbp | Sequence[Sbp] | None = None,
) -> Tensor:
    """See `Tensor.to_global`."""
    if placement is not None and not isinstance(placement, Placement):
        raise TypeError(f"to_global: placement= must be a vmflow.placement, got {placement!r}")
    have = meta_of(tensor).spread
    if have is None:
        if grad_sbp is not None and placement is not None:
            nd_sbp_of(grad_sbp, len(placement.shape))
        if placement is None or sbp is None:
            raise ValueError("to_global: a local tensor needs placement= and sbp=")
        target = spread_of(placement, nd_sbp_of(sbp, len(placement.shape)))
        result: Tensor = _Spreading.apply(tensor.to(placement.device), _agreed(tensor, target))
        return result
    placement = have.placement if placement is None else placement
    if sbp is None:
        if len(placement.shape) != len(have.sbp):
            raise ValueError(f"to_global: {placement!r} has another number of axes, so sbp= is needed")
        sbp = have.sbp
    target = spread_of(placement, nd_sbp_of(sbp, len(placement.shape)))
    check_sbp(target, tuple(tensor.shape))
    back = None if grad_sbp is None else spread_of(have.placement, nd_sbp_of(grad_sbp, len(have.sbp)))
    if back is not None:
        check_sbp(back, tuple(tensor.shape))
    if target is have and (back is None or back is have):
        return tensor
    boxing: Tensor = _Boxing.apply(tensor, target, back)
    return boxing


def to_local(tensor: Tensor) -> Tensor:
    """See `Tensor.to_local`."""
    if meta_of(tensor).spread is None:
        raise ValueError("to_local: the tensor is local")
    result: Tensor = _Taking.apply(tensor)
    return result


def whole(tensor: Tensor) -> Tensor:
    """The whole of a global tensor as a local one; all ranks of its placement must call this.

    Raises:
        RuntimeError: on a rank outside of the placement.
    """
    of = meta_of(tensor)
    rank = current_process().rank
    if rank not in of.spread.placement.group:
        raise RuntimeError(
            f"rank {rank} has no part of a tensor that is {of.spread!r}: only the ranks of the placement can read it; "
            "move it here by .to_global(placement=...) on all ranks, or do not read it on this rank"
        )
    with local_mode():
        return boxed(part_of(tensor), tuple(of.shape), of.spread, of.spread.everywhere())


def cut(name: str, whole: Tensor, device: object, placement: object, sbp: object) -> Tensor:
    """The global tensor with the elements of `whole`, a local one that every rank has; errors as `asked_meta`."""
    of = asked_meta(name, tuple(whole.shape), whole.dtype, device, placement, sbp)
    rank = current_process().rank
    with local_mode():
        if rank not in of.spread.placement.group:
            return made(zeros_of(local_meta(of, rank)), of)
        part = boxed(whole, tuple(of.shape), of.spread.everywhere(), of.spread).contiguous()
        return made(part, of)


def _agreed(tensor: Tensor, target: Spread) -> TensorMeta:
    """The meta of the global tensor of which each rank of the placement passes its part, `tensor`.

    Raises:
        TypeError, ValueError: on all ranks of the placement, if the parts do not make a whole.
        ValueError: on a rank outside of the placement.
    """
    process = current_process()
    group = target.placement.group
    rank = process.rank
    shape: Shape = tuple(tensor.shape)
    if len(group) > 1 and rank in group:
        with local_mode():
            kinds = gathered(
                new([len(shape), ALL.index(tensor.dtype)], device="cpu"), group, (2,) * len(group)
            ).tolist()
            if len(set(kinds[::2])) > 1:
                raise ValueError(f"to_global: ranks {list(group)} have tensors of {kinds[::2]} dimensions")
            if len(set(kinds[1::2])) > 1:
                names = ", ".join([ALL[number].name for number in kinds[1::2]])
                raise TypeError(f"to_global: ranks {list(group)} have tensors of {names}; convert them with .to()")
            flat = gathered(new(list(shape), dtype=int64, device="cpu"), group, (len(shape),) * len(group)).tolist()
        shapes = {each: tuple(flat[place * len(shape) : (place + 1) * len(shape)]) for place, each in enumerate(group)}
        check_sbp(target, shape)
        shape = _whole_shape(target, shapes)
    elif rank not in group:
        raise ValueError(f"to_global: rank {rank} is not among the ranks of {target.placement!r}; only those call it")
    else:
        check_sbp(target, shape)
    return global_meta(shape, tensor.dtype, target)


def _whole_shape(target: Spread, shapes: dict[int, Shape]) -> Shape:
    placement = target.placement
    found = list(shapes[placement.group[0]])
    for dim in {sbp.dim for sbp in target.sbp if sbp.is_split}:
        # The ranks whose coordinates differ from the first rank's only on the axes that split this dimension.
        index = tuple([slice(None) if sbp.is_split and sbp.dim == dim else 0 for sbp in target.sbp])
        found[dim] = sum([shapes[rank][dim] for rank in placement.ranks[index].reshape(-1).tolist()])
    whole_shape = tuple(found)
    for rank, have in shapes.items():
        wanted = target.sizes(whole_shape, rank)
        if wanted != have:
            raise ValueError(
                f"to_global: by {list(map(str, target.sbp))}, rank {rank} should have a part of shape {list(wanted)} "
                f"of {list(whole_shape)}, and has {list(have)}"
            )
    return whole_shape


def conformed(gradient: Tensor, of: Spread) -> Tensor:
    """Box a tensor's gradient to the tensor's spread `of`; each summand of a partial sum gets the whole gradient."""
    return to_global(gradient, of.placement, of.summed().sbp)


class _Spreading(Function):
    """Make a global tensor of the ranks' local ones, differentiably; for a broadcast, the first rank's values count."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, of: TensorMeta) -> Tensor:
        ctx.spread = of.spread
        with local_mode():
            part = part.detach()
            rank = current_process().rank
            for axis, sbp in enumerate(of.spread.sbp):
                row = of.spread.placement.row(rank, axis)
                if sbp == broadcast and len(row) > 1:
                    part = sent_by_root(part, row, row[0])
            part = part.contiguous()
        return made(part, of)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return part_of(conformed(gradient, ctx.spread)), None


class _Taking(Function):
    """Return this rank's part of a global tensor, differentiably."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.of = meta_of(tensor)
        return part_of(tensor).detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        of = ctx.of
        return made(gradient, global_meta(tuple(of.shape), of.dtype, of.spread.summed()))


class _Boxing(Function):
    """From one spread to another."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, target: Spread, back: Spread | None) -> Tensor:
        of = meta_of(tensor)
        ctx.spread = back or of.spread.summed()
        with local_mode():
            old = part_of(tensor)
            part = boxed(old, tuple(of.shape), of.spread, target)
            # A change in place of `tensor` or the result must not change the other on some ranks only.
            part = part.clone() if blob_of(part).storage is blob_of(old).storage else part
        return made(part, global_meta(tuple(of.shape), of.dtype, target))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return to_global(gradient, ctx.spread.placement, ctx.spread.sbp), None, None
