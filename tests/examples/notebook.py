"""A notebook, run without Jupyter: its cells go to IPython's shell, on a running loop, as Jupyter's kernel runs them.

python -m tests.examples.notebook examples/notebooks/quickstart.ipynb            # print the outputs as JSON
python -m tests.examples.notebook --write examples/notebooks/quickstart.ipynb    # store them in the notebook
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from IPython.core.displayhook import CapturingDisplayHook
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


def outputs_of(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of each cell of code, in the form in which notebooks store them.

    Raises:
        Exception: that of a cell that fails.
    """
    options = Config()
    options.HistoryManager.enabled = False
    options.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=options)
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]

    async def run() -> list[list[dict[str, Any]]]:
        return [await _outputs_of_cell(shell, cell, number) for number, cell in enumerate(cells, 1)]

    return asyncio.run(run())


async def _outputs_of_cell(shell: InteractiveShell, cell: str, number: int) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    shell.display_trap.hook = CapturingDisplayHook(shell=shell, outputs=shown)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = await shell.run_cell_async(cell, store_history=True, transformed_cell=shell.transform_cell(cell))
    result.raise_error()
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    for value in shown:
        data = {kind: _lines(text) for kind, text in sorted(value["data"].items())}
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    """A text as notebooks store it."""
    return text.splitlines(keepends=True)


def with_outputs(notebook: dict[str, Any], outputs: list[list[dict[str, Any]]]) -> str:
    """The notebook with these outputs, as the text of its file."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, stored) in enumerate(zip(code, outputs, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, stored
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    notebook = json.loads(options.path.read_text(encoding="utf-8"))
    outputs = outputs_of(notebook)
    if options.write:
        options.path.write_text(with_outputs(notebook, outputs), encoding="utf-8")
    else:
        print(json.dumps(outputs))


if __name__ == "__main__":
    main()
