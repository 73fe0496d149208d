"""``vmflow.distributed.checkpoint``: state dicts of global tensors in a folder, to which each rank writes its parts.

A checkpoint can be loaded by any number of ranks, with any placements and sbp: each rank joins its parts from the files
that have some of their elements.  The folder appears as a whole or not at all.

    checkpoint.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "run/3")

    checkpoint.load({"model": model.state_dict()}, "run/3")                   # in place, each rank its own parts
    optimizer.load_state_dict(checkpoint.read("run/3")["optimizer"])          # whole tensors

The files are numpy's, written by `vmflow.save`: one from each rank that writes parts, and "manifest.npz" with
everything else and the list of the parts.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from io import BytesIO
from typing import Any, Final, NamedTuple

from vmflow.autograd.grad_mode import no_grad
from vmflow.devices import device as Device
from vmflow.dtypes import by_name, dtype as DType
from vmflow.instructions.blob import meta
from vmflow.io import flush, load as load_file, save as save_file
from vmflow.ops.copying import zeros_of
from vmflow.tensor_fields import meta_of
from vmflow.tensors import Tensor

from .collectives import barrier
from .global_tensors import cut, made, part_of, to_global
from .process import current_process
from .spread import Shape, global_meta, local_meta
from .windows import Window, holders, whole_window, window_of

_HOST: Final = Device("cpu")
_FORMAT: Final = 1
_MANIFEST: Final = "manifest.npz"

# A dict of this one key, with the tensor's name, is saved in place of a global tensor.
_MARK: Final = "global tensor"


def mapped(value: Any, change: Callable[[Tensor, str], Any], path: str = "") -> Any:
    """Copy a nesting of dicts, lists and plain tuples, with ``change(tensor, ".key.key")`` in place of each tensor."""
    if isinstance(value, Tensor):
        return change(value, path)
    if isinstance(value, Mapping):
        return {key: mapped(item, change, f"{path}.{key}") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)([mapped(item, change, f"{path}.{place}") for place, item in enumerate(value)])
    return value


# Saving


def save(state_dict: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state dict to a folder; all ranks call this with the same keys, and it returns when the folder is there.

    Each part of a global tensor is written by the first rank of its placement that has it.  Local tensors, and
    everything else, must be the same on all ranks, and are written by rank 0.

    Args:
        state_dict: tensors, numbers, strings, None, and dicts, lists and tuples of these, as for `vmflow.save`.
        path: of the folder; an existing one is replaced in the end.  Folders of this path with ".writing" or ".old"
            after it are removed.

    Raises:
        TypeError: on all ranks, naming the place of a value that cannot be saved.
        ValueError: on all ranks, for a dict of the one key "global tensor".
        OSError: on a rank that cannot write, or if the path is that of a file; what exists stays.
        PeerLost: on the other ranks, when that rank ends.
    """
    folder = os.path.realpath(os.fspath(path))
    writing = f"{folder}.writing"
    rank = current_process().rank
    tensors: dict[str, Any] = {}
    parts: dict[str, Tensor] = {}

    def divided(tensor: Tensor, keys: str) -> Any:
        spread = meta_of(tensor).spread
        if spread is None:
            return tensor
        name = f"{len(tensors)}{keys}"
        whole = to_global(tensor, spread.placement, spread.summed().sbp)
        shape, spread = tuple(whole.shape), spread.summed()
        writers = {ranks[0]: window for window, ranks in holders(spread, shape).items()}
        tensors[name] = {
            "shape": list(shape),
            "dtype": whole.dtype.name,
            "parts": [[writer, list(window.starts), list(window.sizes)] for writer, window in writers.items()],
        }
        if rank in writers:
            parts[name] = part_of(whole)
        return {_MARK: name}

    _refuse_marks(state_dict)
    with no_grad():
        arranged = mapped(state_dict, divided)
    # All ranks make the manifest, so that a value that cannot be saved raises on all, before anything is written.
    manifest = BytesIO()
    save_file({"format": _FORMAT, "tensors": tensors, "state": arranged}, manifest)
    if rank == 0:
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, "expected a folder to replace, or nothing", folder)
        shutil.rmtree(writing, ignore_errors=True)
        os.makedirs(writing)
    _wait_for_all()
    if parts:
        save_file(parts, os.path.join(writing, f"rank-{rank}.npz"))
    if rank == 0:
        with open(os.path.join(writing, _MANIFEST), "wb") as file:
            file.write(manifest.getbuffer())
        flush(os.path.join(writing, _MANIFEST))
    _wait_for_all()
    if rank == 0:
        old = _kept_aside(folder)
        shutil.rmtree(old, ignore_errors=True)
        if os.path.lexists(folder):
            os.replace(folder, old)
        os.replace(writing, folder)
        shutil.rmtree(old, ignore_errors=True)
    _wait_for_all()


def _refuse_marks(value: Any) -> None:
    if _marked(value):
        raise ValueError(f"checkpoint.save: a dict of the one key {_MARK!r} stands for a tensor; rename the key")
    if isinstance(value, Mapping):
        value = value.values()
    elif type(value) not in (list, tuple):
        return
    for item in value:
        _refuse_marks(item)


def _kept_aside(folder: str) -> str:
    """The path to which `save` moves an existing folder while it puts a new one in its place."""
    return f"{os.path.realpath(folder)}.old"


def _wait_for_all() -> None:
    barrier().numpy()


# Loading


class _Folder:
    """A saved state dict.

    Args:
        path: of the folder.

    Attributes:
        state: the state dict, with dicts of the key `_MARK` in place of global tensors.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(path)
        old = _kept_aside(self._folder)
        if not os.path.lexists(self._folder) and os.path.lexists(old):
            self._folder = old  # `save` ended between two renames: read the folder set aside
        manifest = load_file(os.path.join(self._folder, _MANIFEST))
        if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
            raise ValueError(f"checkpoint: {self._folder} was not written by checkpoint.save, or by a later version")
        self._tensors: dict[str, Any] = manifest["tensors"]
        self._files: dict[int, dict[str, Tensor]] = {}
        self.state = manifest["state"]

    def shape(self, name: str) -> Shape:
        """The shape of the global tensor of this name."""
        return tuple(self._tensors[name]["shape"])

    def dtype(self, name: str) -> DType:
        """The dtype of the global tensor of this name."""
        return by_name(self._tensors[name]["dtype"])

    def window(self, name: str, window: Window) -> Tensor:
        """The elements of a global tensor in `window`, joined from the files.

        Raises:
            ValueError: if the manifest lists fewer or more elements in the window.
        """
        found = zeros_of(meta(window.sizes, self.dtype(name), _HOST))
        count = 0
        for rank, starts, sizes in self._tensors[name]["parts"]:
            saved = Window(tuple(starts), tuple(sizes))
            shared = window.shared_with(saved)
            if shared is not None:
                found[window.slices_of(shared)] = self._file(rank)[name][saved.slices_of(shared)]
                count += shared.numel
        if count != found.numel():
            raise ValueError(f"checkpoint: {self._folder} has {count} of {found.numel()} elements of {name!r}")
        return found

    def whole(self, name: str) -> Tensor:
        """All of a global tensor."""
        return self.window(name, whole_window(self.shape(name)))

    def _file(self, rank: int) -> dict[str, Tensor]:
        found = self._files.get(rank)
        if found is None:
            found = self._files[rank] = load_file(os.path.join(self._folder, f"rank-{rank}.npz"))
        return found


def read(path: str | os.PathLike[str]) -> Any:
    """A saved state dict, with all tensors as whole local ones on the CPU; any rank may call this alone.

    Raises:
        OSError: if a file is missing.
        ValueError: if a file is damaged, or not written by `save`, or by a later version.
    """
    folder = _Folder(path)
    with no_grad():
        return _unmarked(folder.state, folder)


def _marked(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {_MARK}


def _unmarked(value: Any, folder: _Folder) -> Any:
    if _marked(value):
        return folder.whole(value[_MARK])
    if isinstance(value, dict):
        return {key: _unmarked(item, folder) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_unmarked(item, folder) for item in value])
    return value


class _Entry(NamedTuple):
    """A value of a state dict that is no dict, no list, and no tuple with tensors.

    Attributes:
        place: the keys, for messages.
        holder, key: the dict or list of the value, see `_entries`, and its key there.
        saved: the value that was saved under the same keys.
    """

    place: str
    holder: Any
    key: Any
    saved: Any


def load(state_dict: MutableMapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Load the values saved under the keys of a state dict: into its tensors in place; other values are replaced.

    Each rank reads the files that have elements of its parts of global tensors, which may have been saved with another
    spread.  Saved keys that the state dict lacks are ignored; all keys and shapes are compared before anything is
    changed.

    Args:
        state_dict: nested as the saved one, or as a part of it.
        path: of the folder.

    Raises:
        KeyError: if a key was not saved.
        TypeError: if a tensor stands where none was saved.
        ValueError: if a tensor has another shape, or as `read`.
        OSError: if a file is missing.
    """
    folder = _Folder(path)
    tuples: list[tuple[Any, Any, list[Any]]] = []
    entries = list(_entries(state_dict, folder.state, "state_dict", tuples))
    for entry in entries:
        target = entry.holder[entry.key]
        if isinstance(target, Tensor):
            if not (_marked(entry.saved) or isinstance(entry.saved, Tensor)):
                raise TypeError(f"checkpoint.load: {entry.place} is a tensor, and none was saved there")
            shape = folder.shape(entry.saved[_MARK]) if _marked(entry.saved) else tuple(entry.saved.shape)
            if shape != tuple(target.shape):
                raise ValueError(
                    f"checkpoint.load: {entry.place} has shape {list(target.shape)}, and was saved with {list(shape)}"
                )
    with no_grad():
        values = [_read_for(entry.holder[entry.key], entry.saved, folder) for entry in entries]
        for entry, value in zip(entries, values, strict=True):
            target = entry.holder[entry.key]
            if isinstance(target, Tensor):
                target.copy_(value)
            else:
                entry.holder[entry.key] = value
    for holder, key, items in tuples:
        holder[key] = tuple(items)


def _read_for(target: Any, saved: Any, folder: _Folder) -> Any:
    """Read the saved value for `target`; for a global target, as a tensor of its spread without partial sums."""
    spread = meta_of(target).spread if isinstance(target, Tensor) else None
    if spread is None:
        return _unmarked(saved, folder)
    summed, shape, rank = spread.summed(), tuple(target.shape), current_process().rank
    device = spread.placement.device
    if not _marked(saved):
        return cut("checkpoint.load", saved.to(device), None, spread.placement, summed.sbp)
    of = global_meta(shape, folder.dtype(saved[_MARK]), summed)
    if rank not in spread.placement.group:
        return made(zeros_of(local_meta(of, rank)), of)
    return made(folder.window(saved[_MARK], window_of(summed, shape, rank)).to(device), of)


def _entries(value: Any, saved: Any, place: str, tuples: list[tuple[Any, Any, list[Any]]]) -> Iterator[_Entry]:
    """Yield the values of a nesting of dicts, lists and tuples with tensors; KeyError if a key was not saved.

    Args:
        value: the dict or list.
        saved: the value that was saved under the same keys.
        place: the keys, for messages.
        tuples: gets, for each tuple with tensors, its dict or list, its key there, and a list of its items, which
            stands for the tuple as a holder; inner tuples come first.
    """
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
    keys: Any = saved if isinstance(saved, dict) else range(len(saved)) if isinstance(saved, (list, tuple)) else ()
    for key, item in items:
        here = f"{place}[{key!r}]"
        if _marked(saved) or key not in keys:
            raise KeyError(f"checkpoint.load: {here} was not saved")
        if isinstance(item, (Mapping, list)):
            yield from _entries(item, saved[key], here, tuples)
        elif type(item) is tuple and _has_tensors(item):
            copied = list(item)
            yield from _entries(copied, saved[key], here, tuples)
            tuples.append((value, key, copied))
        else:
            yield _Entry(here, value, key, saved[key])


def _has_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = value.values()
    elif type(value) not in (list, tuple):
        return isinstance(value, Tensor)
    return any([_has_tensors(item) for item in value])
