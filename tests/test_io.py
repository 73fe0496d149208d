"""`vmflow.save` and `vmflow.load`: round trips, other readers of the files, and errors of bad objects and files."""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import math
import os
import stat
import struct
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vmflow as flow
from tests.planted import failed_tensor
from vmflow import nn, optim

safetensors_numpy = pytest.importorskip("safetensors.numpy")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved.safetensors"


def same(first: Any, second: Any) -> bool:
    """Whether both are of the same types and hold the same, down to the last bit."""
    if isinstance(first, flow.Tensor):
        return (
            type(first) is type(second)
            and first.dtype is second.dtype
            and first.shape == second.shape
            and first.numpy().tobytes() == second.numpy().tobytes()
        )
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(map(repr, first)) == list(map(repr, second)) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, complex):
        return same(first.real, second.real) and same(first.imag, second.imag)
    if isinstance(first, float):
        return struct.pack("d", first) == struct.pack("d", second) or (math.isnan(first) and math.isnan(second))
    return bool(first == second)


def round_trip(obj: Any, path: Path) -> Any:
    flow.save(obj, path)
    return flow.load(path)


# Round trips


def test_a_checkpoint(path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    def train(model: Any, optimizer: Any) -> None:
        for seed in range(3):
            optimizer.zero_grad()
            x = flow.tensor(np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32))
            (model(x) ** 2).sum().backward()
            optimizer.step()

    train(model, optimizer)
    flow.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    again = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    other = optim.Adam(again.parameters())
    loaded = flow.load(path)
    assert loaded["epoch"] == 3
    again.load_state_dict(loaded["model"])
    other.load_state_dict(loaded["optimizer"])
    assert other.param_groups[0]["betas"] == (0.9, 0.999)
    train(model, optimizer)
    train(again, other)
    assert same(again.state_dict(), model.state_dict())


@pytest.mark.parametrize("dtype", flow.dtypes.ALL, ids=lambda x: x.name)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_every_dtype(path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape) * (1.5 + (0.5j if dtype.is_complex else 0))
    tensor = flow.tensor(values.astype(dtype.numpy))
    assert tensor.dtype is dtype
    assert same(round_trip(tensor, path), tensor)


def test_layouts(path: Path) -> None:
    base = flow.arange(24).reshape(2, 3, 4)
    given_ = [base.permute(2, 0, 1), base[:, 1], base[..., ::2], base[:1, :, :1].expand(5, 3, 6)]
    loaded = round_trip(given_, path)
    for have, want in zip(loaded, given_, strict=True):
        assert same(have, want.contiguous())
        assert have.is_contiguous()
    complex_ = flow.tensor(np.arange(6.0).reshape(2, 3) * (1 + 2j)).t()
    assert same(round_trip(complex_, path), complex_.contiguous())


def test_loaded_tensors_can_be_changed(path: Path) -> None:
    loaded = round_trip([flow.zeros(3), flow.zeros(2, dtype=flow.complex64)], path)
    for tensor in loaded:
        tensor.add_(1)
        assert tensor.numpy().all()
    assert not flow.load(path)[0].numpy().any()


def test_parameters_become_tensors(path: Path) -> None:
    loaded = round_trip({"p": nn.Parameter(flow.ones(2)), "r": (flow.ones(1, requires_grad=True) * 2)}, path)
    assert type(loaded["p"]) is flow.Tensor
    assert not loaded["p"].requires_grad
    assert loaded["r"].is_leaf


def test_shared_tensors_are_stored_once_and_shared_again(path: Path) -> None:
    weight = flow.zeros(100, 100)
    loaded = round_trip({"in": weight, "out": weight.detach(), "t": weight.t(), "c": weight.clone()}, path)
    assert path.stat().st_size < 4 * 40_000
    assert len(safetensors_numpy.load_file(path)) == 3
    loaded["in"].add_(1)
    assert loaded["out"].numpy().all()
    assert not loaded["t"].numpy().any()


def test_plain_data(path: Path) -> None:
    given_: dict[Any, Any] = {
        "text": "\u00e4\ud800\0\n",
        "": None,
        7: [True, False, 1, -(10**30), ()],
        "7": (1, (2, [3]), {}),
        -1: {"deep": {"er": [{}, [[]]]}},
        "floats": [0.1, -0.0, 1e-320, math.inf, -math.inf, math.nan, 1.0],
        "complex": (1 + 2j, complex(-0.0, math.nan)),
    }
    assert same(round_trip(given_, path), given_)
    plains: list[Any] = [None, 3, 2.5, "x", [], (), {}, [None]]
    for plain in plains:
        assert same(round_trip(plain, path), plain)
    assert same(round_trip(OrderedDict(b=1, a=2), path), {"b": 1, "a": 2})


plain_data: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(-3, 3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plain=plain_data, keys=st.lists(st.text("ab.~2_", max_size=4) | st.integers(0, 2), unique=True, max_size=5))
def test_any_data_and_any_names(path: Path, plain: Any, keys: list[Any]) -> None:
    given_ = {"plain": plain, "flat": {key: flow.full((1,), float(n)) for n, key in enumerate(keys)}}
    given_["flat"].update({f"{key}.": {key: flow.full((1,), -float(n))} for n, key in enumerate(keys)})
    assert same(round_trip(given_, path), given_)


def test_paths_that_give_one_name(path: Path) -> None:
    given_ = {
        "a": {"b.c": flow.zeros(1)},
        "a.b": {"c": flow.ones(1)},
        "a.b.c": flow.ones(2),
        "__metadata__": flow.ones(3),
    }
    assert same(round_trip(given_, path), given_)


# Other readers and writers


def test_a_state_dict_is_read_by_others(path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    flow.save(model.state_dict(), path)
    arrays = safetensors_numpy.load_file(path)
    assert arrays.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(arrays[name], value.numpy())
    assert list(flow.load(path)) == list(model.state_dict())


def test_nested_tensors_have_dotted_names(path: Path) -> None:
    flow.save({"model": {"w": flow.zeros(1)}, "state": {0: [flow.ones(1, dtype=flow.complex64)]}}, path)
    arrays = safetensors_numpy.load_file(path)
    assert {name: array.shape for name, array in arrays.items()} == {"model.w": (1,), "state.0.0": (1, 2)}


def test_files_of_others_are_dicts(path: Path) -> None:
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "flag": np.array([True])}
    safetensors_numpy.save_file(arrays, path, metadata={"format": "pt"})
    loaded = flow.load(path)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name].numpy(), array)


def test_pytorch_reads_and_writes_the_same_files(path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors_torch = pytest.importorskip("safetensors.torch")
    flow.save({"w": flow.full((2,), 1.5, dtype=flow.bfloat16)}, path)
    assert safetensors_torch.load_file(path)["w"].tolist() == [1.5, 1.5]
    safetensors_torch.save_file({"w": torch.tensor([2.5], dtype=torch.bfloat16)}, path)
    assert same(flow.load(path), {"w": flow.full((1,), 2.5, dtype=flow.bfloat16)})


# Bad objects


class Pair(NamedTuple):
    first: int


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (object(), "a object, which cannot be saved"),
        ({1}, "a set"),
        (b"bytes", "a bytes"),
        (np.zeros(3), r"numpy.ndarray, which cannot be saved; make it a tensor"),
        (np.float64(3), r"numpy.float64, which cannot be saved; make it a Python number"),
        (Pair(1), "Pair, which"),
        (nn.Linear(1, 1), r"Linear, which cannot be saved, .* state_dict\(\), and load that into a Linear"),
        ({1.5: 2}, "has the key 1.5 of type float"),
        ({True: 2}, "has the key True of type bool"),
        ({(1, 2): 2}, r"has the key \(1, 2\) of type tuple"),
    ],
)
def test_bad_objects_are_named_and_no_file_is_touched(path: Path, bad: Any, match: str) -> None:
    flow.save({"good": 1}, path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match=match) as caught:
        flow.save({"good": flow.zeros(1), "list": [0, {"here": (bad,)}]}, path)
    assert "the object['list'][1]['here'][0]" in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_an_object_that_contains_itself_is_refused(path: Path) -> None:
    around: list[Any] = [1]
    around.append({"back": around})
    with pytest.raises(ValueError, match=r"the object\[1\]\['back'\] contains itself"):
        flow.save(around, path)
    twice = [1]
    assert round_trip([twice, twice], path) == [[1], [1]]


def test_a_failed_tensor_is_not_saved(path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="planted"):
        flow.save({"a": flow.zeros(1), "b": failed_tensor()}, path)
    assert os.listdir(path.parent) == []


def test_bad_paths(tmp_path: Path) -> None:
    functions: list[Any] = [lambda x: flow.save(1, x), flow.load]
    for function in functions:
        with pytest.raises(TypeError, match=r"path of a file, or a .*file open for (writing|reading), got bytearray"):
            function(bytearray())
    with pytest.raises(FileNotFoundError):
        flow.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        flow.save(1, tmp_path / "nothing" / "file")
    with pytest.raises(OSError):
        flow.load(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        flow.save(1, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]


def test_where_load_puts_tensors(path: Path) -> None:
    x = flow.arange(3.0)
    flow.save([x, x[1:]], path)
    places: list[Any] = ["sim:1", flow.device("sim:1"), "cpu", None]
    for where in places:
        for found in (flow.load(path, where), flow.load(path, map_location=where)):
            assert [tensor.device for tensor in found] == [flow.device(where or "cpu")] * 2
            assert [tensor.tolist() for tensor in found] == [[0, 1, 2], [1, 2]]
    twice = flow.load(path, "sim:1")
    twice[0].mul_(2)
    flow.save([twice[0], twice[0]], path)
    first, second = flow.load(path, "sim:1")
    first.add_(1)
    assert second.tolist() == [1, 3, 5], "two names of one tensor are one tensor again"
    assert [value.is_meta for value in flow.load(path, "meta")] == [True, True]
    with pytest.raises(flow.DeviceUnavailable):
        flow.load(path, "cuda")
    assert [tensor.device.type for tensor in flow.load(path, {"cuda:0": "sim:1"})] == ["cpu", "cpu"], (
        "here all are cpu's"
    )
    assert [tensor.device.type for tensor in flow.load(path, {"cpu": "sim:1"})] == ["sim", "sim"]
    assert [tensor.device.type for tensor in flow.load(path, lambda storage, location: f"sim:{storage.nbytes()}")] == [
        "sim"
    ] * 2
    with pytest.raises(TypeError, match="map_location"):
        flow.load(path, 3)
    with pytest.raises(ValueError, match="never loads"):
        flow.load(path, weights_only=False)


def test_without_the_library_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("safetensors"):
            raise ImportError(name)
        return original(name, *rest)

    path.write_bytes(bytes(16))
    monkeypatch.setattr(builtins, "__import__", without)
    for attempt in (lambda: flow.save(1, path), lambda: flow.load(path)):
        with pytest.raises(ImportError, match=r"checkout of vmflow: pip install '\.\[io\]'"):
            attempt()


def test_state_dicts_of_everything_that_has_one(path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizers: list[Any] = [
        optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        optim.AdamW(model.parameters(), lr=0.01),
        optim.Adagrad(model.parameters(), lr=0.01),
        optim.LBFGS(model.parameters(), lr=0.01),
    ]
    plain = optimizers[0]
    schedulers: list[Any] = [
        optim.lr_scheduler.StepLR(plain, 3),
        optim.lr_scheduler.CosineAnnealingLR(plain, 10),
        optim.lr_scheduler.ReduceLROnPlateau(plain),
        optim.lr_scheduler.LambdaLR(plain, lambda step: 0.9**step),
        optim.lr_scheduler.OneCycleLR(plain, 0.5, total_steps=20),
        optim.lr_scheduler.SequentialLR(
            plain, [optim.lr_scheduler.ConstantLR(plain), optim.lr_scheduler.StepLR(plain, 2)], [4]
        ),
    ]

    def closure() -> flow.Tensor:
        loss: flow.Tensor = model(flow.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    for optimizer in optimizers:
        optimizer.zero_grad()
        optimizer.step(closure)
    for scheduler in schedulers:
        scheduler.step(*([1.0] if isinstance(scheduler, optim.lr_scheduler.ReduceLROnPlateau) else []))
    state: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizers": [value.state_dict() for value in optimizers],
        "schedulers": [value.state_dict() for value in schedulers],
        "scaler": flow.amp.GradScaler().state_dict(),
        "generator": flow.default_generator.get_state(),
        "more": {"name": "run", "none": None, 3: [1.5, (True, {"deep": flow.ones(2)})]},
    }
    flow.save(state, path)
    found = flow.load(path)
    assert same({**state, "model": dict(state["model"])}, found)
    one: Any
    for one, saved in zip(
        [model, *optimizers, *schedulers], [found["model"], *found["optimizers"], *found["schedulers"]], strict=True
    ):
        one.load_state_dict(saved)
        assert same(dict(one.state_dict()), dict(saved)), type(one).__name__


# How files are replaced


def test_a_crash_while_writing_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.save({"old": flow.ones(3)}, path)

    def crash(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        flow.save({"new": flow.zeros(3)}, path)
    monkeypatch.undo()
    assert list(flow.load(path)) == ["old"]
    assert os.listdir(path.parent) == [path.name]


def test_a_full_disk_is_an_oserror(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors

    def full(*args: Any, **kwargs: Any) -> None:
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors_numpy, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        flow.save({"new": flow.zeros(3)}, path)
    assert os.listdir(path.parent) == []


def test_permissions_and_links_are_kept(path: Path) -> None:
    mask = os.umask(0o027)
    try:
        flow.save(1, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        link = path.parent / "link"
        link.symlink_to(path)
        flow.save(2, link)
    finally:
        os.umask(mask)
    assert link.is_symlink()
    assert flow.load(path) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_the_data_is_on_the_disk_before_it_takes_the_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted(name: str, function: Any) -> Any:
        def call(*args: Any) -> None:
            happened.append(name)
            function(*args)

        return call

    monkeypatch.setattr(os, "fsync", noted("fsync", fsync))
    monkeypatch.setattr(os, "replace", noted("replace", replace))
    flow.save(1, path)
    assert happened == ["fsync", "replace", "fsync"]


async def test_saving_in_a_coroutine(path: Path) -> None:
    tensor = flow.ones(3) * 2
    await flow.synchronize()
    flow.save({"t": tensor}, path)
    assert flow.load(path)["t"].tolist() == [2, 2, 2]


# Bad files


def test_truncated_files(path: Path) -> None:
    flow.save({"a": flow.arange(100), "b": [1, 2]}, path)
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged or no safetensors file"):
            flow.load(path)


def file_with(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04 a zip file, perhaps pickled",
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        file_with({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}}, b"1234"),
        file_with({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"),
        file_with({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"),
        file_with({"a": {"dtype": "XX", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    ],
)
def test_damaged_files(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged or no (safetensors|npz) file"):
        flow.load(path)


def test_a_dtype_that_vmflow_lacks(path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch's safetensors have dtypes of 8 bits that numpy has not")
    from safetensors.torch import save_file

    save_file({"narrow": torch.zeros(2, dtype=torch.float8_e5m2)}, path)
    with pytest.raises(ValueError, match="'narrow' is of dtype F8_E5M2, which vmflow does not have"):
        flow.load(path)


def described(path: Path, description: str) -> Path:
    safetensors_numpy.save_file({"a": np.zeros((2, 2)), "i": np.zeros(2, np.int32)}, path, {"vmflow": description})
    return path


@pytest.mark.parametrize(
    "root",
    [
        {"tensor": "missing"},
        {"tensor": 3},
        {"tensor": ["a"]},
        {"tensor": [["a"], "complex64"]},
        {"tensor": ["a", "complex64"]},
        {"tensor": ["i", "complex64"]},
        {"tensor": ["a", "float32"]},
        {"dict": {}},
        {"dict": [[1]]},
        {"dict": [[[1], 2]]},
        {"dict": [[1.5, 2]]},
        {"dict": [[True, 2]]},
        {"dict": [["a", 2], ["a", 3]]},
        {"tuple": 3},
        {"float": "1.0"},
        {"float": ["nan"]},
        {"complex": [1.0]},
        {"complex": [1, 2]},
        {"object": "os.system"},
        {},
        {"tuple": [], "dict": []},
    ],
)
def test_hostile_descriptions(path: Path, root: Any) -> None:
    with pytest.raises(ValueError, match="is damaged"):
        flow.load(described(path, json.dumps({"format": 1, "root": [root]})))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[1]",
        '{"root": 1}',
        '{"format": 1, "root": NaN}',
        '{"format": 1, "root": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"format": 1, "root": ' + '{"tuple":[' * 5000 + "]}" * 5000 + "}",
    ],
)
def test_descriptions_that_are_none(path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="is damaged"):
        flow.load(described(path, text))


def test_a_newer_format_says_so(path: Path) -> None:
    with pytest.raises(ValueError, match="is of format 2, and this version of vmflow reads 1"):
        flow.load(described(path, '{"format": 2, "root": null}'))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_byte_is_an_error_or_another_object(path: Path, data: st.DataObject) -> None:
    flow.save({"a": flow.arange(4), "b": (1.5, {"x": flow.ones(1, dtype=flow.complex64)}), 3: "text"}, path)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(ValueError):  # and no other exception, and no crash
        loaded = flow.load(path)
        assert repr(loaded)


# numpy's format


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    return tmp_path / "saved.npz"


def test_npz_is_read_by_numpy(npz: Path) -> None:
    model = nn.Linear(3, 2)
    flow.save(model.state_dict(), npz)
    with np.load(npz) as found:
        np.testing.assert_array_equal(found["weight"], model.weight.detach().numpy())
        assert set(found) == {"weight", "bias", "vmflow"}
    again = nn.Linear(3, 2)
    again.load_state_dict(flow.load(npz))
    assert same(again.state_dict(), model.state_dict())


@pytest.mark.parametrize("writer", [np.savez, np.savez_compressed])
def test_npz_is_written_by_numpy(npz: Path, writer: Any) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b/c": np.array(True), "e": np.zeros((0, 2), np.int8)}
    writer(npz, f=np.asfortranarray(arrays["a"]), big=arrays["a"].astype(">f4"), **arrays)
    found = flow.load(npz)
    assert list(found) == ["f", "big", *arrays]
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
        assert found[name].dtype.numpy == array.dtype
    np.testing.assert_array_equal(found["f"].numpy(), arrays["a"])
    assert found["big"].dtype is flow.float32
    found["a"].add_(1)
    np.testing.assert_array_equal(found["a"].numpy(), arrays["a"] + 1)


@pytest.mark.parametrize("dtype", flow.dtypes.ALL, ids=lambda x: x.name)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_every_dtype_in_npz(npz: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape) * (1.5 + (0.5j if dtype.is_complex else 0))
    tensor = flow.tensor(values.astype(dtype.numpy))
    assert same(round_trip(tensor, npz), tensor)


def test_nested_data_and_odd_names_in_npz(npz: Path) -> None:
    weight = flow.ones(3, dtype=flow.bfloat16)
    given_: dict[Any, Any] = {
        "vmflow": flow.ones(1),
        "file": flow.ones(2),
        "a": flow.zeros(1),
        "a.npy": flow.ones(4),
        "\ud800\0/../x": flow.ones(5),
        "": flow.ones(6),
        1: [weight, weight.detach(), (float("nan"), 2j, None, "text")],
    }
    loaded = round_trip(given_, npz)
    assert same(loaded, given_)
    loaded[1][0].zero_()
    assert not loaded[1][1].to(flow.float32).numpy().any()


def test_a_key_that_no_file_can_hold(path: Path) -> None:
    given_ = {"\ud800": flow.ones(2), "?": flow.zeros(2)}
    assert same(round_trip(given_, path), given_)


def test_npz_needs_no_other_library(npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert round_trip({"a": 1}, npz) == {"a": 1}
    with pytest.raises(ImportError, match="need the package safetensors"):
        flow.save({}, npz.with_suffix(".safetensors"))


def _with_object(path: Path) -> None:
    np.savez(path, a=np.array([print], object))


def _with_days(path: Path) -> None:
    np.savez(path, days=np.zeros(2, "datetime64[D]"))


def _with_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"cos\nsystem\n")


def _cut(path: Path) -> None:
    np.savez(path, a=np.zeros(100))
    path.write_bytes(path.read_bytes()[:-30])


def _flipped(path: Path) -> None:
    np.savez(path, a=np.zeros(100))
    content = bytearray(path.read_bytes())
    content[300] ^= 255
    path.write_bytes(content)


def _misdescribed(path: Path) -> None:
    np.savez(path, a=np.zeros(2), vmflow=np.array('{"format":1,"root":{"tensor":["a","bfloat16"]}}'))


def _unnamed(path: Path) -> None:
    np.savez(path, a=np.zeros(2, "datetime64[D]"), vmflow=np.array('{"format":1,"root":{"tensor":"a"}}'))


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (_with_object, "no npz file of plain arrays"),
        (_with_days, r"'days' is of datetime64\[D\], which vmflow does not have"),
        (_with_text, "'data.pkl' in it is no array"),
        (_cut, "damaged or no npz file"),
        (_flipped, "damaged or no npz file"),
        (_misdescribed, "does not hold bfloat16 numbers"),
        (_unnamed, "is damaged: 'a': no vmflow dtype holds"),
        (lambda path: path.write_bytes(b"no zip file"), "damaged or no npz file"),
    ],
)
def test_bad_npz_files(npz: Path, write: Any, text: str) -> None:
    write(npz)
    with pytest.raises(ValueError, match=text):
        flow.load(npz)


# PyTorch's state dicts


def npy_bytes(shape: str, content: bytes = b"", kind: str = "<f4") -> bytes:
    """A file of numpy's with this shape in its header, and any content."""
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(11 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + content


def zipped(content: bytes, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.writestr("x.npy", content)
    return file.getvalue()


def with_sizes(file: bytes, packed: int, unpacked: int) -> bytes:
    """An archive of one entry, of which its directory says these sizes."""
    at = file.rindex(b"PK\1\2")
    return file[: at + 20] + struct.pack("<II", packed, unpacked) + file[at + 28 :]


HUGE = "(999999999999999999,)"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(
            zipped(npy_bytes(HUGE)), "has 0 bytes of data, and float32.* takes 3999999999999999996", id="shape"
        ),
        pytest.param(zipped(npy_bytes(HUGE, bytes(8))), "has 8 bytes of data", id="some data"),
        pytest.param(zipped(npy_bytes("(2,)", bytes(12))), "has 12 bytes of data, and .* takes 8", id="data behind"),
        pytest.param(zipped(npy_bytes(f"(0, {1 << 80})")), "too large for any memory", id="empty and huge"),
        pytest.param(zipped(npy_bytes("(-1, -1)", bytes(4))), "cannot have the shape", id="negative"),
        pytest.param(zipped(npy_bytes("(True,)", bytes(4))), "cannot have the shape", id="bool"),
        pytest.param(zipped(npy_bytes(f"({'1, ' * 60})", bytes(4))), "cannot have the shape", id="dimensions"),
        pytest.param(zipped(npy_bytes("(1,)", bytes(8), "|O")), "never unpickled", id="objects"),
        pytest.param(
            with_sizes(zipped(npy_bytes("(2,)", bytes(8))), 0xF0000000, 0xF0000000),
            "are said to take 4026531840 bytes, and the file has",
            id="a directory that lies",
        ),
        pytest.param(
            with_sizes(zipped(npy_bytes(f"({0xF0000000 - 128},)", kind="|u1")), 100, 0xF0000000),
            "are said to have 4026531840 bytes, of which a compressed file of",
            id="a directory that promises",
        ),
    ],
)
def test_declared_sizes_are_refused_before_anything_gets_memory(
    npz: Path, content: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    npz.write_bytes(content)

    def no_memory(*args: Any, **named: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", no_memory)
        with pytest.raises(ValueError, match=text):
            flow.load(npz)
    with pytest.raises(ValueError, match=text):
        flow.load(io.BytesIO(content))


def test_a_file_that_unpacks_to_many_times_its_size_is_refused(npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmflow.io._MOST_UNPACKED", 1 << 16)
    zeros = np.zeros(1 << 16, np.uint8)
    np.savez_compressed(npz, x=zeros)
    with pytest.raises(ValueError, match=r"of which a compressed file of \d+ bytes may have 65536"):
        flow.load(npz)
    np.savez(npz, x=zeros)
    assert flow.load(npz)["x"].numel() == 1 << 16


@pytest.mark.parametrize("shape", ["(0, 999999999999999999)", "(999999999999999999, 0)"])
def test_an_empty_array_may_have_a_long_dimension(npz: Path, shape: str) -> None:
    npz.write_bytes(zipped(npy_bytes(shape)))
    assert str(tuple(flow.load(npz)["x"].shape)) == shape


@pytest.mark.parametrize("shape", [[0, (1 << 63) - 1], [1] * 60, [0] * 60, [(1 << 62)]])
def test_declared_sizes_of_safetensors(path: Path, shape: list[int]) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ValueError, match=rf"^load: {path}"):
        flow.load(path)


def test_a_state_dict_of_pytorch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors_torch = pytest.importorskip("safetensors.torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    safetensors_torch.save_file(theirs.state_dict(), path)
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    ours.load_state_dict(flow.load(path))
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    found = ours.eval()(flow.tensor(x)).detach().numpy()
    np.testing.assert_allclose(found, theirs.eval()(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)

    halves = {
        name: value.bfloat16() if value.is_floating_point() else value for name, value in theirs.state_dict().items()
    }
    safetensors_torch.save_file(halves, path)
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    other.load_state_dict(flow.load(path), assign=True)
    assert other[0].weight.dtype is flow.bfloat16
    assert isinstance(other[0].weight, nn.Parameter)


def test_a_state_dict_that_does_not_fit_names_everything_at_once(path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors_torch = pytest.importorskip("safetensors.torch")
    safetensors_torch.save_file({"weight": torch.zeros(2, 4), "bias": torch.zeros(3), "scale": torch.zeros(1)}, path)
    ours = nn.Sequential(nn.Linear(3, 2))
    before = ours.state_dict()["0.weight"].numpy()
    with pytest.raises(RuntimeError) as caught:
        ours[0].load_state_dict(flow.load(path))
    text = str(caught.value)
    assert "unexpected keys: 'scale'" in text
    assert "'weight': shape [2, 4] does not fit the module's [2, 3]" in text
    assert "'bias': shape [3] does not fit the module's [2]" in text
    with pytest.raises(RuntimeError, match=r"missing keys: '0\.weight', '0\.bias'"):
        ours.load_state_dict(flow.load(path))
    with pytest.raises(RuntimeError, match="'weight': shape"):
        ours[0].load_state_dict(flow.load(path), strict=False)
    np.testing.assert_array_equal(ours[0].weight.detach().numpy(), before)


def test_files_that_are_open(tmp_path: Path) -> None:
    here = flow.empty(0).device
    state: dict[str, Any] = {
        "weight": flow.arange(6.0).reshape(2, 3),
        "half": flow.ones(2).bfloat16(),
        "step": 3,
        "name": "x",
    }
    buffer = io.BytesIO()
    flow.save(state, buffer)
    buffer.seek(0)
    found = flow.load(buffer, here)
    assert flow.equal(found["weight"], state["weight"])
    assert found["half"].dtype is flow.bfloat16
    assert (found["step"], found["name"]) == (3, "x")
    path = tmp_path / "state.npz"
    with path.open("wb") as file:
        flow.save(state, file)
        assert not file.closed
    assert flow.equal(flow.load(path, here)["weight"], state["weight"])
    with path.open("rb") as file:
        assert flow.load(file)["step"] == 3


def test_an_open_safetensors_file(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "state.safetensors"
    x = flow.ones(2)
    flow.save({"a": x}, path)
    assert flow.equal(flow.load(io.BytesIO(path.read_bytes()), x.device)["a"], x)


def test_open_files_that_do_not_serve(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="open it in binary mode"):
        flow.save({}, io.StringIO())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="binary file open for reading, got StringIO"):
        flow.load(io.StringIO())  # type: ignore[arg-type]
    buffer = io.BytesIO()
    with pytest.raises(TypeError):
        flow.save({"a": object()}, buffer)
    assert buffer.getvalue() == b""
    for content in (b"PK and nothing else", b"\x10\0\0\0\0\0\0\0{bad json......}"):
        with pytest.raises(ValueError, match="load: BytesIO is damaged"):
            flow.load(io.BytesIO(content))
