"""HTML and SVG for notebooks: tables, folding trees and layered graph drawings, from plain data.

All text is escaped, unlike the HTML that `stacked` and `scrolling` take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple


class Tree(NamedTuple):
    """A node of a tree that can be folded.

    Attributes:
        name: the node's text, shown in monospace.
        note: shown after the name, in grey.
        children: the nodes below this node.
    """

    name: str
    note: str = ""
    children: Sequence[Tree] = ()


class Node(NamedTuple):
    """A box of a graph drawing.

    Attributes:
        name: unique in the drawing; edges refer to it.
        label: the lines of text in the box.
        round: whether the box has round ends.
    """

    name: str
    label: str
    round: bool = False


class Edge(NamedTuple):
    """An arrow of a graph drawing.

    Attributes:
        source, target: names of nodes.
        label: a tooltip; in DOT, text beside the line.
        dashed: whether the line is dashed.
    """

    source: str
    target: str
    label: str = ""
    dashed: bool = False


# HTML


def stacked(*parts: str) -> str:
    """Put parts of HTML one below the other."""
    return "<div>" + "".join(parts) + "</div>"


def line(name: str, *notes: str) -> str:
    """A line of text: a name in bold, and notes."""
    return f"<div><b>{escape(name)}</b> {escape(', '.join(notes))}</div>"


def preformatted(text: str) -> str:
    """Text in monospace, with its line breaks."""
    return f'<pre style="margin:0.3em 0">{escape(text)}</pre>'


def scrolling(inner: str) -> str:
    """Wrap HTML that may be wider than the page in a box with a scroll bar."""
    return f'<div style="overflow-x:auto">{inner}</div>'


def table(rows: Iterable[Iterable[object]], headings: Sequence[str] = (), caption: str = "") -> str:
    """A table of texts."""
    parts = ["<table>"]
    if caption:
        parts.append(f'<caption style="text-align:left">{escape(caption)}</caption>')
    if headings:
        parts.append("<thead><tr>" + "".join([f"<th>{escape(text)}</th>" for text in headings]) + "</tr></thead>")
    parts.append("<tbody>")
    for row in rows:
        parts.append("<tr>" + "".join([f"<td>{escape(str(cell))}</td>" for cell in row]) + "</tr>")
    return "".join([*parts, "</tbody></table>"])


def folding(tree: Tree, depth: int = 2) -> str:
    """The HTML of a tree whose nodes can be folded; those less than `depth` levels below the root are open."""
    text = f'<code>{escape(tree.name)}</code> <span style="opacity:0.6">{escape(tree.note)}</span>'
    if not tree.children:
        return f'<div style="margin-left:1.2em">{text}</div>'
    inside = "".join([folding(child, depth - 1) for child in tree.children])
    opened = " open" if depth > 0 else ""
    return f'<details style="margin-left:1.2em"{opened}><summary>{text}</summary>{inside}</details>'


# Drawings.  The layout is that of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
# structures" (1981): layers by the longest path, order within a layer by the mean place of neighbours.

# Pixels.
_CHARACTER: Final = 6.7
_LINE: Final = 15
_PADDING: Final = 8
_GAP: Final = 18
_BETWEEN_LAYERS: Final = 34
# The most characters of a label's line that are drawn; the tooltip has the whole label.
_LONGEST: Final = 56
# An edge over several layers gets a place in each layer between its ends, which keeps it clear of boxes.  If all
# edges together would need more places than this, each is one curve from end to end, also across boxes.
_MOST_PLACES: Final = 20_000
_SWEEPS: Final = 4


class _Place:
    """The rectangle in a layer of a drawing that a node takes, or, for `node` None, an edge that crosses the layer."""

    __slots__ = ("above", "below", "height", "node", "width", "x", "y")

    def __init__(self, node: Node | None) -> None:
        self.node = node
        lines = _lines(node) if node is not None else []
        self.width = max([len(text) for text in lines], default=0) * _CHARACTER + 2 * _PADDING if lines else 2.0
        self.height = len(lines) * _LINE + _PADDING if lines else 0.0
        self.x = self.y = 0.0  # of the centre
        self.above: list[_Place] = []
        self.below: list[_Place] = []


def _lines(node: Node) -> list[str]:
    return [text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..." for text in node.label.split("\n")]


def drawing(title: str, nodes: Sequence[Node], edges: Sequence[Edge]) -> str:
    """An SVG image of nodes in layers, with arrows that mostly point down.

    Edges that do not point down, at least one of each cycle, are at the side and dashed.

    Args:
        nodes: the boxes, in an order in which most edges point forward.
    """
    levels, forward = _levels(nodes, edges)
    places = {node.name: _Place(node) for node in nodes}
    layers: list[list[_Place]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
    for node in nodes:
        layers[levels[node.name]].append(places[node.name])
    spans = sum([levels[edge.target] - levels[edge.source] - 1 for edge in forward])
    routes = {edge: _route(edge, levels, places, layers, spans <= _MOST_PLACES) for edge in forward}
    for sweep in range(_SWEEPS):
        _order(layers, downwards=sweep % 2 == 0)
    width, height = _coordinates(layers)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11" stroke="currentColor" '
        'fill="none">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="vmflow-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="currentColor" stroke="none"/></marker></defs>',
    ]
    for edge in dict.fromkeys(edges):
        route = routes.get(edge)
        if route is not None:
            parts.append(_arrow(edge, _downwards(route)))
        else:
            parts.append(_arrow(edge._replace(dashed=True), _upwards(places[edge.source], places[edge.target])))
    parts += [_box(places[node.name], node) for node in nodes]
    return "\n".join([*parts, "</svg>", ""])


def _levels(nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[dict[str, int], list[Edge]]:
    """Assign a layer to each node; return the layers by node name, and the edges that point down."""
    leaving: dict[str, list[Edge]] = {node.name: [] for node in nodes}
    waits = dict.fromkeys(leaving, 0)
    for edge in edges:
        if edge.source != edge.target:
            leaving[edge.source].append(edge)
            waits[edge.target] += 1
    levels: dict[str, int] = {}
    lowest = dict.fromkeys(leaving, 0)
    ready = [node.name for node in nodes if not waits[node.name]]
    rest = iter([node.name for node in nodes])
    while len(levels) < len(nodes):
        # If every remaining node has an edge from another one, there is a cycle; the edges from remaining nodes to the
        # earliest one, which may lie behind the cycle, do not count.
        name = ready.pop(0) if ready else next(name for name in rest if name not in levels)
        levels[name] = lowest[name]
        for edge in leaving[name]:
            if edge.target not in levels:
                lowest[edge.target] = max(lowest[edge.target], levels[name] + 1)
                waits[edge.target] -= 1
                if not waits[edge.target]:
                    ready.append(edge.target)
    reached = {edge.target for edge in edges if levels[edge.source] < levels[edge.target]}
    for name in leaving:
        below = [levels[edge.target] for edge in leaving[name] if levels[edge.target] > levels[name]]
        if below and name not in reached:
            levels[name] = min(below) - 1  # inputs stand directly above their first use
    return levels, list(dict.fromkeys([edge for edge in edges if levels[edge.source] < levels[edge.target]]))


def _route(
    edge: Edge, levels: dict[str, int], places: dict[str, _Place], layers: list[list[_Place]], passing: bool
) -> list[_Place]:
    """The places from an edge's source to its target; if `passing`, with a new place in each layer between them."""
    route = [places[edge.source]]
    if passing:
        for level in range(levels[edge.source] + 1, levels[edge.target]):
            between = _Place(None)
            layers[level].append(between)
            route.append(between)
    route.append(places[edge.target])
    for upper, lower in pairwise(route):
        upper.below.append(lower)
        lower.above.append(upper)
    return route


def _order(layers: list[list[_Place]], downwards: bool) -> None:
    """Sort each layer by the mean position of its places' neighbours above (or below, if not `downwards`)."""
    position = {id(place): index for layer in layers for index, place in enumerate(layer)}
    for layer in layers if downwards else reversed(layers):
        means = {
            id(place): _mean(
                [position[id(other)] for other in (place.above if downwards else place.below)], position[id(place)]
            )
            for place in layer
        }
        layer.sort(key=lambda place: means[id(place)])
        position.update({id(place): index for index, place in enumerate(layer)})


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _coordinates(layers: list[list[_Place]]) -> tuple[float, float]:
    """Set the x and y of all places' centres; return the drawing's width and height."""
    y = float(_GAP)
    for layer in layers:
        height = max([place.height for place in layer])
        for place in layer:
            place.y = y + height / 2
        y += height + _BETWEEN_LAYERS
        _spread(layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            neighbours = [place.above if downwards else place.below for place in layer]
            wanted = [
                _mean([other.x for other in others], place.x) for place, others in zip(layer, neighbours, strict=True)
            ]
            _spread(layer, wanted)
    places = [place for layer in layers for place in layer]
    left = min([place.x - place.width / 2 for place in places], default=0) - _GAP
    for place in places:
        place.x -= left
    right = max([place.x + place.width / 2 for place in places], default=0)
    return right + 3 * _GAP, y - _BETWEEN_LAYERS + _GAP if layers else y


def _spread(layer: list[_Place], wanted: list[float]) -> None:
    """Set the x of a layer's places near the centres `wanted`, in the layer's order and without overlap."""
    edge = float("-inf")
    for place, x in zip(layer, wanted, strict=True):
        place.x = max(x, edge + _GAP + place.width / 2)
        edge = place.x + place.width / 2
    shift = _mean([x - place.x for place, x in zip(layer, wanted, strict=True)], 0)
    for place in layer:
        place.x += shift


def _downwards(route: list[_Place]) -> str:
    first, last = route[0], route[-1]
    points = [(first.x, first.y + first.height / 2)]
    points += [(place.x, place.y) for place in route[1:-1]]
    points.append((last.x, last.y - last.height / 2))
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        path += f" C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}"
    return path


def _upwards(source: _Place, target: _Place) -> str:
    x0, x1 = source.x + source.width / 2, target.x + target.width / 2
    side = max(x0, x1) + 2 * _GAP
    return f"M{x0:.1f},{source.y:.1f} C{side:.1f},{source.y:.1f} {side:.1f},{target.y:.1f} {x1:.1f},{target.y:.1f}"


def _arrow(edge: Edge, path: str) -> str:
    dashes = ' stroke-dasharray="4 3"' if edge.dashed else ""
    tooltip = f"<title>{escape(edge.label)}</title>" if edge.label else ""
    return f'<path d="{path}" opacity="0.6" marker-end="url(#vmflow-arrow)"{dashes}>{tooltip}</path>'


def _box(place: _Place, node: Node) -> str:
    left, top = place.x - place.width / 2, place.y - place.height / 2
    corner = place.height / 2 if node.round else 3
    lines = [
        f'<text x="{place.x:.1f}" y="{top + (index + 1) * _LINE - 1:.1f}" text-anchor="middle" fill="currentColor" '
        f'stroke="none" opacity="{0.7 if index else 1}">{escape(text)}</text>'
        for index, text in enumerate(_lines(node))
    ]
    tooltip = f"<title>{escape(node.label)}</title>"
    return (
        f'<g>{tooltip}<rect x="{left:.1f}" y="{top:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" '
        f'rx="{corner:.1f}" fill="currentColor" fill-opacity="0.06"/>{"".join(lines)}</g>'
    )
