"""Runs the programs of `scripts` on torch as they are, or on vmflow with the imports changed, and keeps their output.

``python -m tests.models.running`` writes ``printed/NAME.txt``, which PyTorch has printed.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, Final

import numpy as np

from .sources import loaded

HERE: Final = Path(__file__).parent
SCRIPTS: Final = ("dcgan", "gnn", "lstm_tagger", "small_gpt", "unet", "vae", "vit")


def printed(name: str, library: str) -> str:
    """The text that a program prints, whose models start from the same weights on both libraries."""
    script = loaded((HERE / "scripts" / f"{name}.py").read_text(), library)
    models = script.build()
    models = models if isinstance(models, tuple) else (models,)
    tensor = __import__(library).tensor
    for model in models:
        # Strict: a parameter that one library names otherwise is an error.
        model.load_state_dict({name: tensor(weight) for name, weight in _weights(model).items()})
    with contextlib.redirect_stdout(io.StringIO()) as text:
        script.train(*models)
    return text.getvalue()


def kept(name: str) -> str:
    """The text that PyTorch has printed."""
    return (HERE / "printed" / f"{name}.txt").read_text()


def _weights(model: Any) -> dict[str, Any]:
    """Weights made by a formula of their names' order and their shapes, as large as those of new layers."""
    found: dict[str, Any] = {}
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for number, (name, value) in enumerate(model.state_dict().items()):
        array = value.detach().numpy()
        if name in parameters and array.ndim > 1:
            wave = np.sin(np.arange(array.size) * 12.9898 + number) * 43758.5453
            fan_in = array.size // array.shape[0]
            array = ((wave - np.floor(wave) - 0.5) * 2 / np.sqrt(fan_in)).reshape(array.shape).astype(array.dtype)
        elif name in parameters:
            array = (float(name.endswith("weight")) + 0.1 * np.sin(np.arange(array.size) + number)).astype(array.dtype)
        found[name] = array
    # One tensor by two names has one value.
    for name, value in model.named_parameters(remove_duplicate=False):
        for other, same in model.named_parameters():
            if same is value:
                found[name] = found[other]
    return found


if __name__ == "__main__":
    for script_name in SCRIPTS:
        (HERE / "printed" / f"{script_name}.txt").write_text(printed(script_name, "torch"))
