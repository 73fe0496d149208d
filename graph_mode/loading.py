"""Loading graphs that `graph_mode.saving` has written, and running them without the classes that made them."""

from __future__ import annotations

import collections
import keyword
import os
import re
from collections.abc import Mapping
from typing import Any, final

import attrs
import numpy as np

from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.errors import LinAlgError
from vmflow.instructions.blob import TensorMeta
from vmflow.io import load, location
from vmflow.ops.creation.creation import from_array
from vmflow.random import FROM_BEFORE, Generator, seed_and_offset
from vmflow.tensor_fields import blobs_of, meta_of, metas_of
from vmflow.tensors import Tensor

from . import args_tree
from .args_tree import Branch, Fixed, Leaf, Tree
from .blocks import BlockConfig
from .compiled import CompiledGraph, Outside
from .config import GraphConfig
from .describing import described_job
from .job import Job
from .lazy import require_no_build
from .passes import Settings
from .plan import Plan
from .relocation import device_of, moved, relocated
from .saving import HOST, KIND, MANIFEST, TENSORS, VERSION, FormDescription, Manifest, save_graph
from .serialization import job_from_json
from .structured_json import decode, from_json, listed, read, refused, shown


def load_graph(folder: str | os.PathLike[str], map_location: Any = None) -> LoadedGraph:
    """Load a graph that `vmflow.save` has written to a folder; the class and modules that made it are not needed.

    A saved graph is data: loading runs no code of its author's.

    Args:
        folder: the path.
        map_location: a device in place of the one that the graph ran on, for its arguments too; the parts that ran on
            the CPU beside another device stay there.  None leaves everything on its device.

    Raises:
        TypeError: if `folder` is no path, or `map_location` no device.
        ValueError: if the folder is damaged or has another version of the format.  If `map_location` is an unknown
            device, or is given for a graph that runs on several devices besides the CPU.
        DeviceUnavailable: if the graph's device, or `map_location`, cannot be used here.
        SessionClosed: if the present session has been closed.
        OSError: if the folder cannot be read.
        ImportError: if the package safetensors is not installed.

    Example:
        >>> import tempfile
        >>> double = flow.nn.Graph.trace(lambda x: x * 2)
        >>> y = double(flow.tensor([1, 2]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     flow.save(double.graph, folder)
        ...     loaded = flow.load_graph(folder)
        >>> loaded(flow.tensor([3, 4]))
        tensor([6, 8])
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"load_graph: expected the path of a folder, got {type(folder).__name__}")
    return _Loading(os.fspath(folder), location("load_graph", map_location)).graph()


class _Loading:
    """The loading of a saved graph from a folder onto `device`; onto the saved devices if `device` is None."""

    def __init__(self, path: str, device: Device | None) -> None:
        self.path = path
        self.device = device
        self.structures: list[tuple[Tree, Tree]] = []
        self.manifest: Manifest = self._read(MANIFEST, lambda text: read(text, KIND, {VERSION: self._manifest}))
        self.unused: dict[str, Tensor] = {}
        self.variables: dict[str, Tensor] = {}
        self.generators: dict[int, Generator] = {}

    def graph(self) -> LoadedGraph:
        """The whole graph."""
        tensors = load(os.path.join(self.path, TENSORS))
        if type(tensors) is not dict or not all([isinstance(tensor, Tensor) for tensor in tensors.values()]):
            raise ValueError(f"load_graph: {os.path.join(self.path, TENSORS)} holds more than tensors by name")
        self.unused = tensors
        settings = Settings(
            self._set(GraphConfig(), self.manifest.config, "config"),
            {
                name: self._set(BlockConfig(), values, f"blocks[{name!r}]")
                for name, values in self.manifest.blocks.items()
            },
        )
        parts = [self._form(form, trees) for form, trees in zip(self.manifest.forms, self.structures, strict=True)]
        if self.unused:
            raise self._refused(TENSORS, f"no form uses the tensor {next(iter(self.unused))!r}")
        try:
            forms = [
                CompiledGraph(job, outside, settings, tree, metas, out_tree)
                for job, outside, tree, metas, out_tree in parts
            ]
        except (LookupError, ArithmeticError, LinAlgError) as error:
            # For example, a pass that computes with the job's constants has failed.
            raise ValueError(f"load_graph: the graph in {self.path} cannot be computed: {error}") from error
        return LoadedGraph(self.manifest.name, settings, forms, self.variables)

    def _manifest(self, content: dict[str, Any]) -> Manifest:
        pairs = listed(content.pop("structures", None), "structures")
        for state in content.get("generators") or ():
            if isinstance(state, dict) and "position" in state:  # the format of earlier versions
                raise refused("graph.generators", FROM_BEFORE)
        manifest: Manifest = from_json(content, Manifest, "graph")
        if len(pairs) != len(manifest.forms) or not pairs:
            raise refused("structures", f"expected one for each of {len(manifest.forms)} forms, and at least one")
        for state in manifest.generators:
            try:
                seed_and_offset(bytes.fromhex(state.state))
            except ValueError as error:
                raise refused("graph.generators", str(error)) from None
        for position, pair in enumerate(pairs):
            arguments, results = listed(pair, f"structures[{position}]", 2)
            trees = tree_from_json(arguments, "args"), tree_from_json(results, "result")
            form = manifest.forms[position]
            if len(args_tree.paths(trees[0], "")) != len(form.metas) or not _is_call(trees[0]):
                raise refused(f"structures[{position}]", "the arguments do not fit the metas of the form")
            if any([not 0 <= generator < len(manifest.generators) for generator in form.generators]):
                raise refused(f"graph.forms[{position}].generators", "there is no such generator")
            self.structures.append(trees)
        return manifest

    def _form(
        self, form: FormDescription, trees: tuple[Tree, Tree]
    ) -> tuple[Job, Outside, Tree, tuple[TensorMeta, ...], Tree]:
        if re.fullmatch(r"job_[0-9]{1,9}\.json", form.job) is None:
            raise self._refused(MANIFEST, f"{form.job!r} is no name of a job's file")
        places = HOST, HOST

        def on_its_device(saved: Job) -> Job:
            nonlocal places
            places = self._moved(saved)
            return relocated(saved, *places)

        # Moved before the ops are checked, since ops can only be checked for devices that can be used here.
        job: Job = self._read(form.job, lambda text: job_from_json(Job, text, change=on_its_device))
        metas = moved(form.metas, *places)
        if any([op.kind == "update" for op in job.ops]) or job.numbers:
            raise self._refused(form.job, "a saved graph predicts, and updates nothing")
        if [job.buffers[operand].meta for operand in job.inputs] != list(metas):
            raise self._refused(form.job, f"the job's inputs are not those of the form, {list(metas)}")
        if len(args_tree.paths(trees[1], "")) != len(job.outputs):
            raise self._refused(form.job, "the job's outputs do not fit the structure of the results")
        if any([draw.generator > len(form.generators) for draw in job.draws]):
            raise self._refused(form.job, "the job draws from a generator that there is not")
        self._require_names(form.job, job, "variable", form.variables)
        self._require_names(form.job, job, "constant", form.constants)
        buffers = job.buffers
        bindings = {number: self._variable(name, buffers[number].meta) for number, name in form.variables.items()}
        constants = {
            number: self._tensor(name, buffers[number].meta).numpy() for number, name in form.constants.items()
        }
        generators = tuple([self._generator(generator, places) for generator in form.generators])
        return attrs.evolve(job, constants=constants), Outside(bindings, generators), trees[0], metas, trees[1]

    def _moved(self, job: Job) -> tuple[Device, Device]:
        """The device to replace in a job, and its replacement; twice the CPU if `device` is None."""
        return (HOST, HOST) if self.device is None else (device_of(job), self.device)

    def _require_names(self, file: str, job: Job, role: str, names: Mapping[int, str]) -> None:
        expected = {buffer.id for buffer in job.buffers.values() if buffer.role == role}
        for number in sorted(expected ^ names.keys()):
            problem = "has no tensor" if number in expected else "is not in the job"
            raise self._refused(file, f"{role} {number} {problem}")

    def _variable(self, name: str, expected: TensorMeta) -> Tensor:
        """The variable with this name, which several forms may share."""
        tensor = self.variables.get(name)
        if tensor is None:
            tensor = self.variables[name] = self._tensor(name, expected).to(expected.device)
        elif meta_of(tensor) is not expected:
            raise self._refused(TENSORS, f"the tensor {name!r} is {meta_of(tensor)!r}, and used as {expected!r}")
        return tensor

    def _tensor(self, name: str, expected: TensorMeta) -> Tensor:
        tensor = self.unused.pop(name, None)
        if tensor is None:
            raise self._refused(TENSORS, f"the tensor {name!r} is missing")
        meta = meta_of(tensor)
        if meta.shape != expected.shape or meta.dtype is not expected.dtype:
            raise self._refused(TENSORS, f"the tensor {name!r} is {meta!r}, but {expected!r} is needed")
        return tensor

    def _generator(self, number: int, places: tuple[Device, Device]) -> Generator:
        """The manifest's generator with this number, which several forms may share."""
        generator = self.generators.get(number)
        if generator is None:
            state = self.manifest.generators[number]
            array = from_array(np.frombuffer(bytes.fromhex(state.state), np.uint8).copy(), HOST)
            generator = self.generators[number] = Generator(moved(state.device, *places)).set_state(array)
        return generator

    def _set(self, settings: Any, values: Mapping[str, Any], place: str) -> Any:
        """Set the named settings to these values, and return `settings`."""
        for name, value in values.items():
            if not hasattr(settings, name) or name.startswith("_") or callable(getattr(settings, name)):
                raise self._refused(MANIFEST, f"{place}: this vmflow has no setting {name!r}")
            old = getattr(settings, name)
            new = set(value) if isinstance(value, frozenset) else value
            if old is not None and type(new) is not type(old):
                raise self._refused(MANIFEST, f"{place}: {name!r} cannot be {value!r}")
            setattr(settings, name, new)
        return settings

    def _read(self, file: str, decoded: Any) -> Any:
        try:
            with open(os.path.join(self.path, file), encoding="utf-8") as content:
                return decoded(content.read())
        except ValueError as error:
            raise self._refused(file, str(error)) from error

    def _refused(self, file: str, problem: str) -> ValueError:
        return ValueError(f"load_graph: {os.path.join(self.path, file)}: {problem}")


def _is_call(tree: Tree) -> bool:
    """Whether a tree is that of a call's arguments: a tuple of positional arguments and a dict of named arguments."""
    if not isinstance(tree, Branch) or len(tree.children) != 2:
        return False
    args, kwargs = tree.children
    return isinstance(args, Branch) and isinstance(kwargs, Branch) and (args.kind, kwargs.kind) == ("tuple", "dict")


@final
class LoadedGraph:
    """A loaded graph, without the class and modules that made it; called like the saved one.

    A call may return before its results have been computed: ``await`` them, or read them.

    Attributes:
        name: the graph's name.
        config: the saved settings; a change does not build the graph again.
    """

    def __init__(
        self, name: str, settings: Settings, forms: list[CompiledGraph], variables: Mapping[str, Tensor]
    ) -> None:
        self.name = name
        self.config = settings.config
        self._settings = settings
        self._forms = forms
        self._last: CompiledGraph | None = None
        self._variables = dict(variables)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph once.

        Raises:
            ValueError: if no saved form takes such arguments.
            SessionClosed: if the session in which the graph was loaded has been closed.
            VirtualMachineClosed: if the virtual machine is closed.
            RuntimeError: while a graph is being built in this context.
        """
        mode = MODE.get()
        last = self._last
        sources = None if last is None or kwargs else last.sources_of(args, mode)
        if last is not None and sources is not None:
            return last.call(sources, (), mode)
        form, tensors = self._form(args, kwargs)
        form.require_open()
        self._last = form
        return form.call(blobs_of(tensors), (), mode)

    def run_by_vm(self, *args: Any, **kwargs: Any) -> Any:
        """Call the graph op by op, by instructions of the virtual machine: slower, with the same results.

        Raises:
            ValueError, SessionClosed, VirtualMachineClosed, RuntimeError: as for a call.
        """
        form, tensors = self._form(args, kwargs)
        form.require_open()
        return form.run_by_vm(tensors, ())

    def _form(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[CompiledGraph, list[Tensor]]:
        require_no_build(self.name, "call one after the other")
        tree, tensors = args_tree.flatten((args, dict(sorted(kwargs.items()))))
        metas = metas_of(tensors)
        for form in self._forms:
            if form.metas == metas and form.tree == _with_named_tuples(form.tree, tree):
                return form, tensors
        latest = self._forms[-1]
        problem = args_tree.misfit(latest.tree, latest.metas, _with_named_tuples(latest.tree, tree), metas)
        forms = "" if len(self._forms) == 1 else f" (none of its {len(self._forms)} forms takes these arguments)"
        raise ValueError(f"{self.name}: {problem}{forms}; save the graph after a call with such arguments")

    def forms(self) -> tuple[CompiledGraph, ...]:
        """The saved forms: one for each structure, shapes and dtypes of arguments."""
        return tuple(self._forms)

    @property
    def job(self) -> Job:
        """The recorded job of the last saved form."""
        return self._forms[-1].job

    @property
    def full_job(self) -> Job:
        """The job of the last saved form, after all passes."""
        return self._forms[-1].full_job

    @property
    def plan(self) -> Plan:
        """The plan by which `full_job` runs."""
        return self._forms[-1].plan

    @property
    def is_compiled(self) -> bool:
        """Always True."""
        return True

    def state_dict(self) -> dict[str, Tensor]:
        """The variables by name, such as "model.0.weight"; they share the graph's memory."""
        return {name: tensor.detach() for name, tensor in self._variables.items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Replace the values of the variables.

        Raises:
            KeyError: if a name is missing or unknown.
            TypeError: if a value is no tensor.
            ValueError: if a tensor has another shape than its variable.
            RuntimeError: if a tensor is on the meta device, and its variable is not.  Only this error may leave some
                variables changed.
        """
        for name in sorted(self._variables.keys() ^ state_dict.keys()):
            problem = "is missing" if name in self._variables else "is not part of the graph"
            raise KeyError(f"{self.name}: {name!r} {problem}")
        for name, tensor in self._variables.items():
            if not isinstance(state_dict[name], Tensor):
                raise TypeError(f"{self.name}: {name!r} must be a tensor, not {type(state_dict[name]).__name__}")
            if tensor.shape != state_dict[name].shape:
                raise ValueError(
                    f"{self.name}: {name!r} is {meta_of(tensor)!r}, and {meta_of(state_dict[name])!r} was given"
                )
        for name, tensor in self._variables.items():
            tensor.detach().copy_(state_dict[name].detach())

    def save_to_folder(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph's forms, settings and tensors to a folder, for `vmflow.save`."""
        save_graph(self.name, self.config, self._settings.blocks, self._forms, folder)

    def close(self) -> None:
        """Release the memory of runs; running launches end normally.  The next call allocates memory again."""
        for form in self._forms:
            form.release()

    def __del__(self) -> None:
        for form in self.__dict__.get("_forms", ()):  # none if the constructor failed
            form.close()

    def __repr__(self) -> str:
        return described_job(self.name, "LoadedGraph", self.config, self.job)

    def _repr_html_(self) -> str:
        return self.job._repr_html_()


# Structures


def tree_from_json(value: Any, place: str) -> Tree:
    """The tree that JSON of `tree_to_json` describes.

    Raises:
        ValueError: if it describes none.
    """
    if value == "tensor":
        return Leaf()
    if type(value) is not dict or len(value) != 1:
        raise refused(place, f"{shown(value)} is no part of a structure")
    ((kind, content),) = value.items()
    if kind == "fixed":
        return Fixed(decode(content, place))
    if kind in ("tuple", "list"):
        return Branch(kind, tuple(range(len(listed(content, place)))), _children(content, place))
    if kind == "dict":
        pairs = [listed(pair, place, 2) for pair in listed(content, place)]
        keys = tuple([decode(key, place) for key, _ in pairs])
        if len(set(map(_hashable(place), keys))) != len(keys):
            raise refused(place, "a key of a dict appears twice")
        return Branch("dict", keys, _children([child for _, child in pairs], place))
    if kind == "named":
        name, fields, content = listed(content, place, 3)
        children = _children(listed(content, place), place)
        return Branch(_named_tuple(name, fields, len(children), place), tuple(range(len(children))), children)
    raise refused(place, f"there are no structures of the kind {shown(kind)}")


def _hashable(place: str) -> Any:
    def checked(key: Any) -> Any:
        try:
            hash(key)
        except TypeError:
            raise refused(place, f"{key!r} cannot be a key") from None
        return key

    return checked


def _children(content: Any, place: str) -> tuple[Tree, ...]:
    return tuple([tree_from_json(child, f"{place}[{index}]") for index, child in enumerate(content)])


def _named_tuple(name: Any, fields: Any, count: int, place: str) -> Any:
    """Make a named-tuple class with the name and fields of a saved one."""
    names = [name, *listed(fields, place, count)]
    good = [type(field) is str and field.isidentifier() and not keyword.iskeyword(field) for field in names]
    if not all(good) or len(set(fields)) != count or any([field.startswith("_") for field in fields]):
        raise refused(place, f"{shown(names)} is no named tuple")
    return collections.namedtuple(name, fields)


def _with_named_tuples(saved: Tree, given: Tree) -> Tree:
    """The given tree with the saved tree's named-tuple classes at equal places, where names and fields are equal."""
    if not isinstance(saved, Branch) or not isinstance(given, Branch) or len(saved.keys) != len(given.keys):
        return given
    kind = given.kind
    if not isinstance(kind, str) and not isinstance(saved.kind, str):
        same = kind.__name__ == saved.kind.__name__ and kind._fields == saved.kind._fields
        kind = saved.kind if same else kind
    children = [_with_named_tuples(one, other) for one, other in zip(saved.children, given.children, strict=True)]
    return Branch(kind, given.keys, tuple(children))
