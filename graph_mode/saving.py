"""Saving graphs that predict, so that they run without the classes that made them; see `graph_mode.loading`.

A saved graph is a folder:

    manifest.json       the version, the name and settings of the graph, its random generators, and its forms: for each
                        the structure of arguments and results, and the names of the tensors of variables and constants
    job_0.json ...      the job of each form, as recorded; loading runs the passes again
    tensors.safetensors variables by their names, and constants

With `with_dynamic_input_shape` there may be several forms.  For each structure, shapes and dtypes of the arguments, the
form for the present state, if any, is saved; saved forms share their variables.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Final

import attrs
import numpy as np

from vmflow.devices import device as Device
from vmflow.instructions.blob import Storage, TensorMeta
from vmflow.io import flush, save
from vmflow.ops.creation.creation import from_array
from vmflow.random import Generator
from vmflow.tensor_fields import blob_of
from vmflow.tensors import Tensor

from .args_tree import Fixed, Leaf, Tree
from .blocks import BlockConfig
from .compiled import CompiledGraph
from .config import GraphConfig
from .job import Job
from .structured_json import encode, to_json, written

VERSION: Final = 1

HOST: Final = Device("cpu")
KIND: Final = "vmflow.graph"
MANIFEST: Final = "manifest.json"
TENSORS: Final = "tensors.safetensors"


@attrs.frozen
class FormDescription:
    """One form in the manifest.

    Attributes:
        job: the name of the job's file.
        metas: the metas of the tensors among the arguments.
        variables: by buffer, the name of its tensor.
        constants: by buffer, the name of its tensor.
        generators: indices in the manifest's random generators.
    """

    job: str
    metas: tuple[TensorMeta, ...]
    variables: dict[int, str]
    constants: dict[int, str]
    generators: tuple[int, ...] = ()


@attrs.frozen
class GeneratorState:
    """A saved random generator.

    Attributes:
        device: the device on which its numbers are used.
        state: the bytes of `Generator.get_state`, as hexadecimal digits.
    """

    device: Device
    state: str


@attrs.frozen
class Manifest:
    """A saved graph without the structures of its forms, which the same file holds as `tree_to_json` writes them.

    Attributes:
        name: the graph's name.
        forms: see `FormDescription`.
        config: settings of the graph that differ from the defaults, by name.
        blocks: settings of blocks that differ from the defaults, by path.
        generators: the random generators that the forms use, except the caller's default one.
    """

    name: str
    forms: tuple[FormDescription, ...]
    config: dict[str, Any] = attrs.field(factory=dict)
    blocks: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    generators: tuple[GeneratorState, ...] = ()


# Trees


def tree_to_json(tree: Tree, place: str) -> Any:
    """The JSON of a tree of arguments or results.

    Raises:
        TypeError: if a value or a key cannot be written as data; names `place` and the keys on the way.
    """
    if isinstance(tree, Leaf):
        return "tensor"
    try:
        if isinstance(tree, Fixed):
            return {"fixed": encode(tree.value)}
        keys = [encode(key) for key in tree.keys] if tree.kind == "dict" else []
    except TypeError as error:
        raise TypeError(f"{place} is part of the graph, and cannot be saved: {error}") from error
    children = [tree_to_json(child, f"{place}[{key!r}]") for key, child in zip(tree.keys, tree.children, strict=True)]
    if tree.kind == "dict":
        return {"dict": [list(pair) for pair in zip(keys, children, strict=True)]}
    if isinstance(tree.kind, str):
        return {tree.kind: children}
    return {"named": [tree.kind.__name__, list(tree.kind._fields), children]}


# Saving


def save_graph(
    name: str,
    config: GraphConfig,
    blocks: Mapping[str, BlockConfig],
    forms: list[CompiledGraph],
    folder: str | os.PathLike[str],
) -> None:
    """Write a graph to a folder, which `vmflow.load_graph` reads.

    The folder appears whole or not at all.  A saved graph at that path is replaced.

    Args:
        name: the graph's name.
        config: the graph's settings.
        blocks: the settings of its blocks, by path.
        forms: the graph's built forms.
        folder: the path.

    Raises:
        RuntimeError: if the graph has not been built, makes updates, as optimizers and training batch norms do, adds
            gradients to parameters, or takes batches of a loader; or if a variable is on the meta device.
        TypeError: if an argument, a result, a setting or an op cannot be written as data; names it.
        FileExistsError: if neither a saved graph nor an empty folder is at that path, but something else.
        OSError: if the folder cannot be written.
        ImportError: if the package safetensors is not installed.
    """
    if not forms:
        raise RuntimeError(f"save: {name} has not been built; call it once before saving it")
    for form in forms:
        _require_prediction(name, form.job)
        if form.outside.outlets:
            raise RuntimeError(
                f"save: {name} takes batches of a DataLoader, which is not saved; make the batch an argument of build()"
            )
        if form.outside.leaves:
            raise RuntimeError(
                f"save: {name} adds gradients to the parameters of its modules; save a graph that predicts, of the "
                "same modules, without backward()"
            )
    path = os.path.realpath(os.fspath(folder))
    _require_place(path)
    tensors: dict[str, Tensor] = {}
    names: dict[Storage, str] = {}
    generators: list[Generator] = []
    structures = [[tree_to_json(form.tree, "an argument"), tree_to_json(form.out_tree, "the result")] for form in forms]
    described = [_describe(position, form, tensors, names, generators) for position, form in enumerate(forms)]
    manifest = Manifest(
        name,
        tuple(described),
        _settings(config, GraphConfig()),
        {path: settings for path, block in blocks.items() if (settings := _settings(block, BlockConfig()))},
        tuple([_state(generator) for generator in generators]),
    )
    content = {**to_json(manifest, Manifest), "structures": structures}
    texts = {MANIFEST: written(KIND, VERSION, content, 1)}
    texts.update(
        {description.job: portable(form.job).to_json() for description, form in zip(described, forms, strict=True)}
    )
    _write(path, texts, tensors)


def portable(job: Job) -> Job:
    """The job with the files of source lines relative to the working folder or `sys.path`, or as bare file names."""
    return attrs.evolve(job, ops=tuple([attrs.evolve(op, line=_portable(op.line)) for op in job.ops]))


def _portable(line: str) -> str:
    file, colon, rest = line.rpartition(":")
    if not os.path.isabs(file):
        return line
    folders = [os.path.join(os.path.abspath(folder), "") for folder in (os.curdir, *sys.path)]
    around = [
        folder for folder in folders if file.startswith(folder) and folder != os.path.join(os.path.abspath(os.sep), "")
    ]
    inside = file[len(max(around, key=len)) :] if around else os.path.basename(file)
    return f"{inside}{colon}{rest}"


def _require_prediction(name: str, job: Job) -> None:
    for op in job.ops:
        if op.kind == "update":
            raise RuntimeError(
                f"save: {name} changes its modules or their state by {op.name} (at {op.line}), which is Python code "
                "and no data; save a graph that predicts, of the same modules, without optimizers, after model.eval()"
            )
    if job.numbers:
        raise RuntimeError(f"save: {name} takes an optimizer's learning rates at each call; save a graph that predicts")


def _require_place(path: str) -> None:
    if os.path.lexists(path) and not _holds_graph(path):
        if os.path.isdir(path) and not os.listdir(path):
            return
        raise FileExistsError(f"save: {path} exists and is no saved graph; choose another folder, or remove it")


def _holds_graph(path: str) -> bool:
    """Whether the folder's manifest begins like that of a saved graph."""
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8", errors="replace") as file:
            return f'"kind": "{KIND}"' in file.read(100)
    except OSError:
        return False


def _describe(
    position: int,
    form: CompiledGraph,
    tensors: dict[str, Tensor],
    names: dict[Storage, str],
    generators: list[Generator],
) -> FormDescription:
    """The description of one form; adds its tensors and generators to `tensors`, `names` and `generators`."""
    variables: dict[int, str] = {}
    constants: dict[int, str] = {}
    for buffer in form.job.buffers.values():
        if buffer.role == "variable":
            tensor = form.outside.bindings[buffer.id]
            storage = blob_of(tensor).storage
            if storage not in names:
                names[storage] = _unused(buffer.name, tensors)
                tensors[names[storage]] = tensor
            variables[buffer.id] = names[storage]
        elif buffer.role == "constant":
            constants[buffer.id] = _unused(f"form_{position}.{buffer.name}", tensors)
            tensors[constants[buffer.id]] = from_array(np.array(form.job.constants[buffer.id]), HOST)
    return FormDescription(
        f"job_{position}.json",
        form.metas,
        variables,
        constants,
        tuple([_place_in(generators, generator) for generator in form.outside.generators]),
    )


def _unused(wanted: str, taken: Mapping[str, Any]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}~{number}"
    return name


def _place_in(generators: list[Generator], generator: Generator) -> int:
    if generator not in generators:
        generators.append(generator)
    return generators.index(generator)


def _state(generator: Generator) -> GeneratorState:
    return GeneratorState(generator.device, generator.get_state().numpy().tobytes().hex())


def _settings(config: Any, defaults: Any) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    names = defaults.__slots__ if hasattr(defaults, "__slots__") else list(defaults.__dict__)
    changed = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(defaults, name)}
    return {name: frozenset(value) if isinstance(value, set) else value for name, value in changed.items()}


def _write(path: str, texts: Mapping[str, str], tensors: dict[str, Tensor]) -> None:
    """Write a temporary folder beside `path`, and rename it to `path` when all files are on the disk."""
    around, name = os.path.split(path)
    temporary = os.path.join(around, f".{name}.{secrets.token_hex(8)}.tmp")
    os.mkdir(temporary)
    try:
        save(tensors, os.path.join(temporary, TENSORS))
        for file, text in texts.items():
            with open(os.path.join(temporary, file), "w", encoding="ascii") as content:
                content.write(text)
                content.flush()
                os.fsync(content.fileno())
        flush(temporary)
        _put_in_place(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    flush(around)


def _put_in_place(temporary: str, path: str) -> None:
    if not os.path.isfile(os.path.join(path, MANIFEST)):
        os.rename(temporary, path)  # replaces an empty folder, too
        return
    # A folder cannot be replaced in one step; if the second step fails, the first is undone.
    old = f"{temporary}.old"
    os.rename(path, old)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)
