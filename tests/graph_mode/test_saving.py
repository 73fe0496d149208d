"""Saved graphs: a loaded graph computes the same bits without any class, and damage is refused by name."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import namedtuple
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode import args_tree, compiled, saving
from vmflow.graph_mode.args_tree import Tree
from vmflow.graph_mode.loading import tree_from_json
from vmflow.graph_mode.runtime import GraphRuntime
from vmflow.graph_mode.saving import portable, tree_to_json

from .test_serialization import JUNK, Forward, Train, any_of, bits, changed, places

pytest.importorskip("safetensors")


class Model(nn.Module):
    """Layers of several kinds."""

    scale: flow.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(36, 5)
        self.register_buffer("scale", flow.tensor([0.5]))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        out: flow.Tensor = self.head(self.layers(x)) * self.scale + flow.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
        return out


class Predict(nn.Graph):
    """The model's prediction, and the tensors that it was made from."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def build(self, x: flow.Tensor) -> dict[str, Any]:
        scores = self.model(x)
        return {"probabilities": scores.softmax(-1), "best": [scores.argmax(-1), "index"]}


@pytest.fixture
def model() -> Model:
    made = Model()
    made(flow.randn(8, 1, 8, 8))  # running statistics that are not the first
    made.eval()
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "saved"


def saved_and_loaded(graph: nn.Graph, folder: Path) -> Any:
    flow.save(graph, folder)
    return flow.load_graph(folder)


def test_a_loaded_graph_computes_the_same_bits(model: Model, folder: Path) -> None:
    graph, x = Predict(model), flow.randn(2, 1, 8, 8)
    expected = bits(graph(x))
    loaded = saved_and_loaded(graph, folder)
    for found in (loaded(x), loaded.run_by_vm(x)):
        assert bits(found) == expected
        assert list(found) == ["probabilities", "best"]
        assert found["best"][1] == "index"
    assert loaded.job == portable(graph.job)
    assert loaded.full_job.ops == portable(graph.full_job).ops
    assert loaded.plan.lower_bound == graph.plan.lower_bound
    assert loaded.name == graph.name
    assert loaded.is_compiled
    assert sorted(os.listdir(folder)) == ["job_0.json", "manifest.json", "tensors.safetensors"]


_ALONE = """
import sys
import numpy as np
import vmflow as flow
graph = flow.load_graph(sys.argv[1])
assert not any([name.startswith("tests") for name in sys.modules])
np.save(sys.argv[3], graph(flow.tensor(np.load(sys.argv[2])))["probabilities"].numpy())
"""


@pytest.mark.host
def test_a_fresh_interpreter_needs_no_class(model: Model, folder: Path, tmp_path: Path) -> None:
    graph, x = Predict(model), flow.randn(2, 1, 8, 8)
    expected = graph(x)["probabilities"].numpy()
    flow.save(graph, folder)
    np.save(tmp_path / "x.npy", x.numpy())
    root = Path(flow.__file__).parents[1]
    outside = {**os.environ, "PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}
    arguments = [str(folder), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", _ALONE, *arguments], check=True, env=outside, cwd=tmp_path, timeout=120)
    assert np.load(tmp_path / "y.npy").tobytes() == expected.tobytes()


def test_load_says_which_function_loads_the_folder(model: Model, folder: Path) -> None:
    graph = Predict(model.eval())
    graph(flow.ones(1, 1, 8, 8))
    flow.save(graph, folder)
    with pytest.raises(IsADirectoryError, match=r"folder of a graph; load it by vmflow\.load_graph"):
        flow.load(folder)
    with pytest.raises(TypeError, match=r"folder of its own: give it to vmflow\.save alone"):
        flow.save([graph], folder)


def test_a_loaded_graph_within_a_graph_is_refused(model: Model, folder: Path) -> None:
    graph, x = Predict(model), flow.randn(2, 1, 8, 8)
    graph(x)
    loaded = saved_and_loaded(graph, folder)
    for call in (loaded, loaded.run_by_vm):
        with pytest.raises(RuntimeError, match=f"{loaded.name} cannot be called while 'function_.*' is being built"):
            nn.Graph.trace(lambda call=call: call(x))()


def test_a_coroutine_awaits_results_of_a_loaded_graph(model: Model, folder: Path) -> None:
    graph, x = Predict(model), flow.randn(2, 1, 8, 8)
    expected = bits(graph(x))
    loaded = saved_and_loaded(graph, folder)

    async def main() -> Any:
        return await loaded(x)

    assert bits(asyncio.run(main())) == expected


def test_a_closed_graph_allocates_its_memory_once_more(model: Model, folder: Path, monkeypatch: Any) -> None:
    graph, x = Predict(model), flow.randn(2, 1, 8, 8)
    expected = bits(graph(x))
    loaded = saved_and_loaded(graph, folder)
    made: list[GraphRuntime] = []

    def noted(*args: Any) -> GraphRuntime:
        made.append(GraphRuntime(*args))
        return made[-1]

    monkeypatch.setattr(compiled, "GraphRuntime", noted)
    for calls in range(3):
        assert [bits(loaded(x)) for _ in range(3)] == [expected] * 3
        assert len(made) == calls + 1
        loaded.close()


class Pair(NamedTuple):
    """An argument of a class that a program that loads need not have."""

    first: flow.Tensor
    second: flow.Tensor


def test_nested_arguments_and_results(folder: Path) -> None:
    def build(pair: Pair, more: Any, *, factor: float, none: Any = None) -> Any:
        return Pair(pair.first * factor, more["a"][0]), [pair.second, (more[3],)], None

    class Named(nn.Graph):
        def build(self, *args: Any, **kwargs: Any) -> Any:
            return build(*args, **kwargs)

    graph = Named()
    pair = Pair(flow.ones(2), flow.arange(3))
    more = {"a": [flow.zeros(2, 2)], 3: flow.tensor(True)}
    expected = bits(graph(pair, more, factor=2.5))
    loaded = saved_and_loaded(graph, folder)
    found = loaded(pair, more, factor=2.5)
    assert bits(found) == expected
    assert type(found[0]).__name__ == "Pair"
    assert found[0].second.shape == (2, 2)
    assert found[2] is None
    other = namedtuple("Pair", ["first", "second"])  # type: ignore[name-match]
    assert bits(loaded(other(*pair), more, factor=2.5)) == expected
    with pytest.raises(ValueError, match=r"kwargs\['factor'\] was 2.5 when the graph was built, and is 3.0"):
        loaded(pair, more, factor=3.0)
    with pytest.raises(ValueError, match=r"args\[0\] was a Pair of 2 when the graph was built, and is a tuple of 2"):
        loaded(tuple(pair), more, factor=2.5)
    with pytest.raises(ValueError, match=r"args\[0\]\[0\] was float32\[2\] on .* and is float32\[3\]"):
        loaded(Pair(flow.ones(3), pair.second), more, factor=2.5)


def test_all_shapes_are_saved_and_share_their_variables(model: Model, folder: Path) -> None:
    graph = Predict(model).with_dynamic_input_shape()
    batches = [flow.randn(count, 1, 8, 8) for count in (1, 2, 3)]
    expected = [bits(graph(x)) for x in batches]
    loaded = saved_and_loaded(graph, folder)
    assert [bits(loaded(x)) for x in batches] == expected
    assert loaded.state_dict().keys() == {f"model.{name}" for name in model.state_dict() if "num_batches" not in name}
    with pytest.raises(ValueError, match=r"none of its 3 forms takes these arguments.*save the graph after a call"):
        loaded(flow.randn(4, 1, 8, 8))
    loaded.load_state_dict({name: tensor * 0 for name, tensor in loaded.state_dict().items()})
    for x in batches:
        assert (loaded(x)["probabilities"].numpy() != 0).all()
        np.testing.assert_array_equal(loaded(x)["best"][0].numpy(), 4)  # by the constant alone


def test_variables_of_all_kinds(folder: Path) -> None:
    rows = flow.arange(12, dtype=flow.bfloat16).reshape(3, 4)
    turned = rows.T[1:]
    others = [flow.tensor([1 + 2j]), flow.tensor([True]), flow.tensor(3, dtype=flow.int8), flow.zeros(0, 2)]

    def build(x: flow.Tensor) -> Any:
        return turned + x, [other.clone() for other in others], rows

    graph = Forward(build)
    expected = bits(graph(flow.ones(4 - 1, 3, dtype=flow.bfloat16)))
    loaded = saved_and_loaded(graph, folder)
    assert bits(loaded(flow.ones(3, 3, dtype=flow.bfloat16))) == expected
    assert {name.partition("_")[0] for name in loaded.state_dict()} == {"free"}


def test_a_loaded_graph_continues_with_the_saved_variables(folder: Path) -> None:
    count = flow.zeros(())

    def build(x: flow.Tensor) -> flow.Tensor:
        count.add_(1)
        return x + count

    graph = Forward(build)
    assert [graph(flow.ones(1)).item() for _ in range(2)] == [2.0, 3.0]
    loaded = saved_and_loaded(graph, folder)
    assert [loaded(flow.ones(1)).item() for _ in range(2)] == [4.0, 5.0]
    assert count.item() == 2.0
    again = saved_and_loaded(loaded, folder.with_name("again"))
    assert again(flow.ones(1)).item() == 6.0


def test_random_numbers_go_on_where_they_were(folder: Path) -> None:
    generator = flow.Generator().manual_seed(5)
    graph = Forward(lambda x: (x + flow.rand(3, generator=generator), flow.rand(3)))
    bits(graph(flow.zeros(3)))
    flow.save(graph, folder)
    flow.manual_seed(1)
    expected = bits(graph(flow.zeros(3)))
    loaded = flow.load_graph(folder)
    flow.manual_seed(1)
    assert bits(loaded(flow.zeros(3))) == expected


def test_settings_are_kept(model: Model, folder: Path) -> None:
    graph = Predict(model)
    graph.config.set_outputs_buffer_size(3)
    graph.config.allow_fusion(False)
    graph.config.set_execution_order("speed")
    graph.model.config.activation_checkpointing = True
    bits(graph(flow.randn(2, 1, 8, 8)))
    loaded = saved_and_loaded(graph, folder)
    assert repr(loaded.config) == repr(graph.config)
    flow.save(loaded, folder)
    assert json.loads((folder / "manifest.json").read_text())["blocks"] == {"model": {"activation_checkpointing": True}}


# Refused graphs


def test_a_graph_that_was_not_built_is_refused(model: Model, folder: Path) -> None:
    with pytest.raises(RuntimeError, match=r"has not been built.*call it once"):
        flow.save(Predict(model), folder)
    assert not folder.exists()


def test_a_graph_that_trains_is_refused(folder: Path) -> None:
    graph = Train()
    graph(flow.ones(5, 3)).numpy()
    with pytest.raises(RuntimeError, match=r"by model\.1\.batch_norm\.running .* Python code .* after model\.eval\(\)"):
        flow.save(graph, folder)
    assert not folder.exists()


def test_arguments_that_are_no_data_are_refused(folder: Path) -> None:
    graph = Forward(lambda x, other: x)
    graph._compile(flow.ones(1), [len])
    with pytest.raises(
        TypeError, match=r"\[0\]\[1\]\[0\] is part of the graph, and cannot be saved: <built-in function len>"
    ):
        flow.save(graph, folder)
    assert not folder.exists()


def test_something_else_in_the_place_is_left_alone(model: Model, folder: Path) -> None:
    graph = Predict(model)
    bits(graph(flow.randn(2, 1, 8, 8)))
    folder.mkdir()
    (folder / "thesis.txt").write_text("all of it")
    with pytest.raises(FileExistsError, match="exists and is no saved graph"):
        flow.save(graph, folder)
    assert (folder / "thesis.txt").read_text() == "all of it"
    (folder / "manifest.json").write_text('{"name": "a web app"}')  # not of a saved graph
    with pytest.raises(FileExistsError, match="exists and is no saved graph"):
        flow.save(graph, folder)
    assert (folder / "thesis.txt").read_text() == "all of it"
    (folder / "manifest.json").unlink()
    (folder / "thesis.txt").unlink()
    flow.save(graph, folder)  # an empty folder will do
    flow.load_graph(folder)


@pytest.mark.parametrize("step", ["save", "flush", "rename", "second rename"])
@pytest.mark.parametrize("there_before", [False, True])
def test_a_failed_save_leaves_the_old_content(
    step: str, there_before: bool, model: Model, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, x = Predict(model), flow.randn(2, 1, 8, 8)
    expected = bits(graph(x))
    if there_before:
        flow.save(graph, folder)
    elif step == "second rename":
        pytest.skip("there is but one")
    model.scale.mul_(2)
    calls: list[Any] = []
    real = os.rename

    def fail(*arguments: Any) -> None:
        calls.append(arguments)
        if step == "second rename" and len(calls) != 2:
            real(*arguments)
            return
        raise OSError("the disk is full")

    owner: Any = os if "rename" in step else saving
    monkeypatch.setattr(owner, step.removeprefix("second "), fail)
    with pytest.raises(OSError, match="the disk is full"):
        flow.save(graph, folder)
    monkeypatch.undo()
    assert calls
    assert os.listdir(folder.parent) == (["saved"] if there_before else [])
    if there_before:
        assert bits(flow.load_graph(folder)(x)) == expected
    flow.save(graph, folder)
    assert os.listdir(folder.parent) == ["saved"]
    assert bits(flow.load_graph(folder)(x)) == bits(graph(x)) != expected


# Damage


@pytest.fixture
def damaged(model: Model, folder: Path) -> Path:
    graph = Predict(model)
    bits(graph(flow.randn(2, 1, 8, 8)))
    flow.save(graph, folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.pop("model.head.bias"), r"the tensor 'model\.head\.bias' is missing"),
        (lambda x: x.update(more=flow.ones(1)), r"no form uses the tensor 'more'"),
        (
            lambda x: x.update({"model.head.bias": flow.ones(6)}),
            r"the tensor 'model\.head\.bias' is float32\[6\], but float32\[5\] is needed",
        ),
        (
            lambda x: x.update({"model.scale": flow.ones(1, dtype=flow.float64)}),
            r"the tensor 'model\.scale' is float64\[1\], but float32\[1\] is needed",
        ),
        (lambda x: x.update({"form_0.constant_0": flow.ones(4)}), r"the tensor 'form_0\.constant_0' is float32\[4\]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(damaged: Path, change: Any, message: str) -> None:
    tensors = flow.load(damaged / "tensors.safetensors")
    change(tensors)
    flow.save(tensors, damaged / "tensors.safetensors")
    with pytest.raises(ValueError, match=rf"load_graph: .*tensors\.safetensors: {message}"):
        flow.load_graph(damaged)


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (("version",), 2, "a newer version of vmflow has written it"),
        (("kind",), "x", "expected an object of the kind"),
        (("structures",), [], "expected one for each of 1 forms"),
        (("structures", 0, 0), "tensor", r"structures\[0\]: the arguments do not fit"),
        (("structures", 0, 1), "tensor", "the job's outputs do not fit"),
        (("structures", 0, 1), {"heap": []}, "no structures of the kind 'heap'"),
        (("structures", 0, 1), {"named": ["a b", ["x"], ["tensor"]]}, "is no named tuple"),
        (("structures", 0, 1), {"dict": [["a", "tensor"], ["a", "tensor"]]}, "a key of a dict appears twice"),
        (("forms", 0, "job"), "", "is no name of a job's file"),
        (("forms", 0, "job"), "../job_0.json", "is no name of a job's file"),
        (("forms", 0, "metas", 0), ["float32", [3], "cpu"], "the job's inputs are not those of the form"),
        (("forms", 0, "variables"), {}, "variable 1 has no tensor"),
        (("forms", 0, "constants", "99"), "x", "constant 99 is not in the job"),
        (("forms", 0, "generators"), [0], "there is no such generator"),
        (("config",), {"colour": 3}, "this vmflow has no setting 'colour'"),
        (("config",), {"enable_amp": 3}, "this vmflow has no setting 'enable_amp'"),
        (("config",), {"fusion": 3}, "'fusion' cannot be 3"),
        (("generators",), [{"device": "cpu", "state": "00"}], "these bytes are no state of a generator"),
        (("generators",), [{"device": "cpu", "state": "x"}], "graph.generators: "),
        (("generators",), [{"device": "cpu", "seed": 1, "position": 0}], "from an earlier version of vmflow"),
    ],
)
def test_a_wrong_manifest_is_refused(damaged: Path, path: tuple[Any, ...], to: Any, message: str) -> None:
    file = damaged / "manifest.json"
    file.write_text(changed(file.read_text(), *path, to=to))
    with pytest.raises(ValueError, match=rf"load_graph: .*{message}"):
        flow.load_graph(damaged)


def test_files_that_are_not_there(damaged: Path) -> None:
    for file in ("job_0.json", "tensors.safetensors", "manifest.json"):
        content = (damaged / file).read_bytes()
        (damaged / file).unlink()
        with pytest.raises(OSError, match=file):
            flow.load_graph(damaged)
        (damaged / file).write_bytes(content)
    (damaged / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="manifest"):
        flow.load_graph(damaged)
    with pytest.raises(TypeError, match="expected the path of a folder"):
        flow.load_graph(3)  # type: ignore[arg-type]


def test_state_dicts_that_do_not_fit_change_nothing(damaged: Path) -> None:
    loaded = flow.load_graph(damaged)
    state = {name: tensor.clone() for name, tensor in loaded.state_dict().items()}
    with pytest.raises(KeyError, match=r"'model\.scale' is missing"):
        loaded.load_state_dict({name: value for name, value in state.items() if name != "model.scale"})
    with pytest.raises(KeyError, match="'more' is not part of the graph"):
        loaded.load_state_dict({**state, "more": flow.ones(1)})
    with pytest.raises(ValueError, match=r"'model\.scale' is float32\[1\], and float32\[2\] was given"):
        loaded.load_state_dict({**{name: value + 1 for name, value in state.items()}, "model.scale": flow.ones(2)})
    arrays: Any = {**{name: value + 1 for name, value in state.items()}, "model.scale": np.ones(1)}
    with pytest.raises(TypeError, match=r"'model\.scale' must be a tensor, not ndarray"):
        loaded.load_state_dict(arrays)
    assert bits(list(loaded.state_dict().values())) == bits(list(state.values()))


@cache
def _manifest(folder: Path) -> str:
    """That of a graph which is saved there, once."""
    graph = Forward(lambda x: [x + flow.tensor([1.0]), {"a": x}])
    graph._compile(flow.ones(2))
    flow.save(graph, folder)
    return (folder / "manifest.json").read_text()


@settings(max_examples=200)
@given(data=st.data())
def test_changed_manifests_are_refused_or_load(data: st.DataObject, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "mutated"
    text = _manifest(folder)
    path = any_of(data, places(json.loads(text)))
    (folder / "manifest.json").write_text(
        changed(text, *path, to=data.draw(st.sampled_from([KeyError, 0, "0", -1, 1 << 40]) | JUNK))
    )
    try:
        flow.load_graph(folder)
    except (ValueError, FileNotFoundError):
        return


TREES = st.recursive(
    st.builds(args_tree.Leaf) | st.builds(args_tree.Fixed, st.none() | st.integers() | st.text() | st.booleans()),
    lambda inner: (
        st.builds(
            lambda kind, children: args_tree.Branch(kind, tuple(range(len(children))), tuple(children)),
            st.sampled_from(["tuple", "list"]),
            st.lists(inner, max_size=3),
        )
        | st.builds(
            lambda items: args_tree.Branch("dict", tuple(items), tuple(items.values())),
            st.dictionaries(st.text() | st.integers(), inner, max_size=3),
        )
    ),
)


@given(TREES)
def test_trees_come_back(tree: Tree) -> None:
    assert tree_from_json(json.loads(json.dumps(tree_to_json(tree, "here"))), "here") == tree


def test_nothing_is_saved_of_the_machine(model: Model, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "functions.py"
    outside.parent.mkdir()
    outside.write_text("def double(x):\n    return x * 2\n")
    names: dict[str, Any] = {}
    exec(compile(outside.read_text(), str(outside), "exec"), names)
    graph = Forward(lambda x: names["double"](model(x)) + 1)
    loaded_lines = {op.line for op in saved_and_loaded_after(graph, flow.randn(2, 1, 8, 8), folder).job.ops}
    recorded = {op.line for op in graph.job.ops}
    assert f"{outside}:2, in double" in recorded
    assert "functions.py:2, in double" in loaded_lines
    here = os.path.join("tests", "graph_mode", "test_saving.py")
    assert any([line.startswith(f"{here}:") for line in loaded_lines])
    root = str(Path(__file__).parents[2])
    for file in folder.iterdir():
        content = file.read_bytes().decode("latin-1")
        assert root not in content
        assert str(tmp_path) not in content


def saved_and_loaded_after(graph: nn.Graph, x: flow.Tensor, folder: Path) -> Any:
    bits(graph(x))
    return saved_and_loaded(graph, folder)


@pytest.mark.parametrize("where", ["sim:1", "cpu"])
def test_a_graph_can_be_loaded_onto_another_device(model: Model, folder: Path, where: str) -> None:
    generator = flow.Generator().manual_seed(5)

    def build(x: flow.Tensor) -> Any:
        noise = flow.rand(5, generator=generator, device=x.device) + flow.arange(5.0, device=x.device)
        return model(x).softmax(-1), noise, flow.zeros_like(x)[0, 0, 0] + flow.ones(8, device=x.device)

    graph, x = Forward(build), flow.randn(2, 1, 8, 8)
    bits(graph(x))
    flow.save(graph, folder)
    expected = graph(x)
    loaded = flow.load_graph(folder, map_location=where)
    found = loaded(x.to(where))
    assert [tensor.device for tensor in found] == [flow.device(where)] * 3
    if x.device.type == "cuda":
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other.to("cpu").numpy(), rtol=1e-5)
    else:
        assert bits(found) == bits(expected)
    assert {value.device for value in loaded.state_dict().values()} == {flow.device(where)}
    if x.device is not flow.device(where):
        with pytest.raises(ValueError, match="save the graph after a call with such arguments"):
            loaded(x)
    again = folder.with_name("again")
    flow.save(loaded, again)
    assert flow.load_graph(again)(x.to(where))[0].device is flow.device(where)


@pytest.mark.not_on_cuda
def test_where_a_graph_cannot_be_loaded(model: Model, folder: Path) -> None:
    graph = Forward(lambda x: x.to("sim:3").exp().to("sim:4") * 2)
    bits(graph(flow.ones(2)))
    flow.save(graph, folder)
    with pytest.raises(ValueError, match=r"the job runs on .*sim:3 and sim:4, but map_location can only move"):
        flow.load_graph(folder, "cpu")
    flow.load_graph(folder)
    with pytest.raises(flow.DeviceUnavailable):
        flow.load_graph(folder, "cuda")
    with pytest.raises(TypeError, match="load_graph: map_location must be a device such as 'cpu', not dict"):
        flow.load_graph(folder, {"cuda:0": "cpu"})


@pytest.mark.not_on_cuda
def test_a_graph_of_a_device_that_is_not_here_can_be_loaded_onto_another(folder: Path) -> None:
    graph = Forward(lambda x: x.to("sim:3").exp() * flow.ones(2, device="sim:3"))
    expected = bits(graph(flow.ones(2, device="sim:3")))
    flow.save(graph, folder)
    for file in folder.glob("*.json"):
        file.write_text(file.read_text().replace("sim:3", "cuda:3"))
    with pytest.raises(flow.DeviceUnavailable, match="cuda:3 cannot be used"):
        flow.load_graph(folder)
    assert bits(flow.load_graph(folder, "cpu")(flow.ones(2, device="cpu"))) == expected
