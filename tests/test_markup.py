"""In notebooks: tables of tensors, trees of modules, drawings of graphs and tables of snapshots."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import vmflow as flow
from tests.vm.gates import eager, entered, gate, held
from vmflow import nn
from vmflow.markup import Edge, Node, Tree, drawing, folding, line, preformatted, stacked, table

pytestmark = pytest.mark.host

EVIL = '<script>alert("&")</script>'
VOID = {"br", "meta"}


class Page(HTMLParser):
    """A page of HTML, whose tags are balanced.

    Attributes:
        tags: those that begin, in order.
        texts: between the tags, in order.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


def page_of(thing: object) -> Page:
    html = thing._repr_html_()  # type: ignore[attr-defined]
    assert isinstance(html, str)
    return Page(html)


# Parts


def test_all_text_is_escaped() -> None:
    html = stacked(
        line(EVIL, EVIL),
        preformatted(EVIL),
        table([[EVIL]], [EVIL], EVIL),
        folding(Tree(EVIL, EVIL, [Tree(EVIL, EVIL)])),
        drawing(EVIL, [Node("a", EVIL), Node("b", "b")], [Edge("a", "b", EVIL)]),
    )
    assert "script" not in Page(html).tags
    assert Page(html).texts.count(EVIL) >= 12


def test_a_tree_is_open_at_the_top_and_folded_below() -> None:
    leaf = Tree("leaf")
    html = folding(Tree("a", "", [Tree("b", "", [Tree("c", "", [leaf])])]))
    assert html.count("<details") == 3
    assert html.count(" open") == 2


# Drawings


def boxes_of(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """The left, top, right and bottom sides of each box, by the first line of its label."""
    found = {}
    for group in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        rect, text = group[1], group[2]
        left, top, width, height = [float(rect.attrib[name]) for name in ("x", "y", "width", "height")]
        found[str(text.text)] = (left, top, left + width, top + height)
    return found


def nodes_of(names: str) -> list[Node]:
    return [Node(name, name) for name in names.split()]


def edges_of(pairs: str) -> list[Edge]:
    return [Edge(pair[0], pair[1]) for pair in pairs.split()]


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        ("a", ""),
        ("a b", "ab"),
        ("a b c d", "ab ac bd cd ad"),
        ("a b c d e f", "ab bc cd de ef af bf ae"),
        ("b a c", "ab bc"),
    ],
)
def test_arrows_point_down_and_boxes_do_not_overlap(names: str, pairs: str) -> None:
    svg = drawing("test", nodes_of(names), edges_of(pairs))
    boxes = boxes_of(svg)
    assert boxes.keys() == set(names.split())
    assert svg.count("marker-end") == len(pairs.split())
    for pair in pairs.split():
        assert boxes[pair[0]][3] < boxes[pair[1]][1]
    each = list(boxes.values())
    for index, one in enumerate(each):
        for other in each[:index]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_an_edge_that_closes_a_circle_points_up_and_is_dashed() -> None:
    svg = drawing("test", nodes_of("a b c"), edges_of("ab bc ca cc"))
    boxes = boxes_of(svg)
    assert boxes["a"][3] < boxes["b"][1] < boxes["c"][1]
    assert svg.count("stroke-dasharray") == 2
    # In this circle `a` moves down, to stand above `c`, and so below `b`.
    assert drawing("test", nodes_of("a b c d"), edges_of("ba ac cb bd dc")).count("stroke-dasharray") == 1


def test_an_input_stands_above_its_first_use() -> None:
    boxes = boxes_of(drawing("test", nodes_of("a w b c"), edges_of("ab bc wc")))
    assert boxes["w"][1] == boxes["b"][1]


def test_a_drawing_fits_into_its_image() -> None:
    svg = drawing("test", nodes_of("a b c d e"), edges_of("ab ac ad ae"))
    root = ElementTree.fromstring(svg)
    for left, top, right, bottom in boxes_of(svg).values():
        assert 0 <= left < right <= float(root.attrib["width"])
        assert 0 <= top < bottom <= float(root.attrib["height"])


def test_nothing_can_be_drawn() -> None:
    assert boxes_of(drawing("empty", [], [])) == {}


def test_long_lines_are_cut_and_whole_in_the_tooltip() -> None:
    svg = drawing("test", [Node("a", "x" * 200)], [])
    (label,) = boxes_of(svg)
    assert len(label) < 60
    assert f"<title>{'x' * 200}</title>" in svg


# Tensors


@pytest.mark.parametrize(
    ("tensor", "texts"),
    [
        (flow.tensor([1.0, 2.5]), ["Tensor", "float32, [2], on cpu", "1.0000", "2.5000"]),
        (flow.tensor([[1, 2], [3, 4]]), ["Tensor", "int64, [2, 2], on cpu", "1", "2", "3", "4"]),
        (flow.tensor(3), ["Tensor", "int64, [], on cpu", "3"]),
        (flow.zeros(2, 0), ["Tensor", "float32, [2, 0], on cpu", "[]"]),
        (flow.ones(1, 2, 2), ["Tensor", "float32, [1, 2, 2], on cpu", "[[[1., 1.],\n  [1., 1.]]]"]),
        (flow.ones(1, requires_grad=True), ["Tensor", "float32, [1], on cpu, requires_grad", "1."]),
        (flow.ones(1, requires_grad=True).exp(), ["Tensor", "float32, [1], on cpu, grad_fn=<exp>", "2.7183"]),
        (flow.tensor([0.5], dtype=flow.bfloat16), ["Tensor", "bfloat16, [1], on cpu", "0.5000"]),
        (nn.Parameter(flow.ones(1)), ["Parameter", "float32, [1], on cpu, requires_grad", "1."]),
        (
            flow.empty(2, device="meta"),
            ["Tensor", "float32, [2], on meta", "no values: the meta device computes shapes alone"],
        ),
    ],
)
def test_a_tensor_is_a_table(tensor: flow.Tensor, texts: list[str]) -> None:
    assert page_of(tensor).texts == texts


def test_the_middle_of_a_large_tensor_is_left_out() -> None:
    square = flow.arange(400).reshape(20, 20)
    square.numpy()  # a tensor that a worker has not computed yet is shown without values
    page = page_of(square)
    assert page.tags.count("tr") == page.tags.count("td") / 7 == 7
    assert page.texts.count("...") == 7 + 6
    assert page.texts[-1] == "399"
    assert len(page_of(flow.zeros(1000, 1000)).texts) < 60


def test_a_tensor_that_is_not_computed_yet_is_pending() -> None:
    with held(eager(name="html")) as gate:
        assert page_of(gate.tensor + 1).texts[-1] == "pending: await the tensor, then show it again"
        gate.open()
        tensor = gate.tensor + 1
        tensor.numpy()
        assert page_of(tensor).texts[-1] == "2."


def test_a_failed_tensor_shows_its_error() -> None:
    failed = flow.ones(2)[flow.tensor([5])]
    with pytest.raises(IndexError):
        failed.item()
    assert page_of(failed).texts[-1].startswith("failed: IndexError(")


def test_on_a_running_loop_nothing_blocks() -> None:
    async def main() -> Page:
        return page_of(await (flow.ones(2) + 1))

    assert asyncio.run(main()).texts[2:] == ["2.", "2."]


def test_values_on_another_device_are_not_copied() -> None:
    tensor = flow.ones(2, device="sim")
    tensor.numpy()
    assert page_of(tensor).texts[-1] == "values are on sim:0; .cpu() copies them"


def test_a_tensor_of_a_graph_that_is_being_built_has_no_values() -> None:
    shown: list[Page] = []

    @flow.nn.Graph.trace
    def double(x: flow.Tensor) -> flow.Tensor:
        shown.append(page_of(x))
        return x * 2

    double(flow.ones(2))
    assert shown[0].texts[-1] == "an operand of a graph that is being built"


# Modules


def test_a_module_is_a_tree_with_numbers_of_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 1)))
    model[2].requires_grad_(False)
    assert page_of(model).texts == [
        *("Sequential()", "21 parameters, 2 of 4 tensors frozen"),
        *("(0): Linear(in_features=3, out_features=4, bias=True)", "16 parameters"),
        "(1): ReLU()",
        *("(2): Sequential()", "5 parameters, frozen"),
        *("(0): Linear(in_features=4, out_features=1, bias=True)", "5 parameters, frozen"),
    ]


def test_a_module_without_shapes_yet_says_so() -> None:
    assert page_of(nn.LazyLinear(3)).texts[1] == "0 parameters, some without a shape yet"


def test_the_settings_of_a_module_are_escaped() -> None:
    class Evil(nn.Module):
        def extra_repr(self) -> str:
            return EVIL

    assert page_of(Evil()).texts == [f"Evil({EVIL})"]


# Graphs


class Predict(nn.Graph):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

    def build(self, x: flow.Tensor) -> flow.Tensor:
        y: flow.Tensor = self.model(x)
        return y + 1


def test_a_graph_is_drawn_once_it_is_built(tmp_path: Path) -> None:
    graph = Predict()
    assert page_of(graph).texts[:2] == [graph.name, "not built yet: its first call builds it"]
    with pytest.raises(RuntimeError, match="no job yet"):
        graph.draw()
    graph(flow.ones(2, 3)).numpy()
    assert "svg" in page_of(graph).tags
    image = graph.draw(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == image == graph.job.to_svg()
    labels = boxes_of(image)
    assert {"linear", "relu", "input args[0]", "output 0"} <= labels.keys()
    assert labels["input args[0]"][3] < labels["linear"][1] < labels["relu"][1] < labels["output 0"][1]
    assert "model.0" in image


def test_each_part_of_a_graph_can_be_drawn() -> None:
    graph = Predict()
    graph(flow.ones(2, 3)).numpy()
    assert graph.draw(part="full_job") == graph.full_job.to_svg()
    assert graph.draw(part="plan") == graph.plan.to_svg()
    assert {"source", "sink"} <= boxes_of(graph.plan.to_svg()).keys()
    assert "svg" in page_of(graph.plan).tags
    with pytest.raises(ValueError, match="part must be 'job', 'full_job' or 'plan', got 'picture'"):
        graph.draw(part="picture")  # type: ignore[arg-type]


def test_a_loaded_graph_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    graph = Predict()
    graph(flow.ones(2, 3)).numpy()
    flow.save(graph, tmp_path / "saved")
    loaded = flow.load_graph(tmp_path / "saved")
    assert {"linear", "relu"} <= set(page_of(loaded).texts)


def test_a_very_large_graph_is_not_shown_in_a_notebook() -> None:
    @flow.nn.Graph.trace
    def long(x: flow.Tensor) -> flow.Tensor:
        for _ in range(500):
            x = x.sin()
        return x

    long(flow.ones(2))
    page = page_of(long.graph)
    assert re.fullmatch(r"502 nodes, too many for a notebook; .*", page.texts[1])
    assert long.graph.draw().count("<rect") == 502


# Machines


def test_a_snapshot_is_tables_of_streams_and_instructions() -> None:
    with held(eager(name="html <b>")) as gate:
        waiting = gate.tensor + 1
        page = page_of(flow.vm.virtual_machine.current_machine().snapshot())
        gate.open()
        waiting.numpy()
    assert page.texts[0] == "Snapshot of html <b>"
    assert page.tags.count("table") == 3
    assert page.tags.count("svg") == 1
    assert {"Streams", "planted", "Memory, in bytes"} <= set(page.texts)


def test_a_snapshot_tells_which_instructions_each_waits_for() -> None:
    machine = eager(name="waits")
    with held(machine) as gate, flow.no_grad():
        doubled = gate.tensor.to("sim") * 2
        total = doubled.to("cpu") + gate.tensor
        shot = machine.snapshot()
        by_name = {info.name: info for info in shot.lively}
        gate.open()
        total.numpy()
    add = by_name["add"]
    copies = [info.serial for info in shot.lively if info.name == "to_device"]
    assert add.state == "WAITING"
    assert copies[-1] in add.waits_for
    assert f"waits for {', '.join([f'#{serial}' for serial in add.waits_for])} on cpu:compute" in str(add)
    assert add.line is not None
    assert add.line.startswith(__file__)
    drawn = boxes_of(shot.to_svg())
    assert drawn.keys() == {f"#{info.serial} {info.name}" for info in shot.lively}
    for serial in add.waits_for:
        above = next(info for info in shot.lively if info.serial == serial)
        assert drawn[f"#{above.serial} {above.name}"][3] < drawn[f"#{add.serial} add"][1]


def test_a_snapshot_connects_launched_instructions_in_the_order_in_which_they_run() -> None:
    machine = eager(name="order")
    with entered(machine), gate(cost=0) as held_up, flow.no_grad():
        copy = (flow.ones(3, device="sim") * 2).to("cpu")
        late = copy.neg()
        early = held_up.tensor.exp()
        copy.numpy()
        machine.driver.drive()
        shot = machine.snapshot()
        held_up.open()
        late.numpy(), early.numpy()
    serials = {info.name: info.serial for info in shot.lively}
    assert serials["neg"] < serials["exp"], "though it is launched later, since it waits for the device"
    assert (serials["planted"], serials["exp"], serials["neg"]) in shot.launched
    drawn = boxes_of(shot.to_svg())
    assert drawn[f"#{serials['exp']} exp"][3] < drawn[f"#{serials['neg']} neg"][1]
