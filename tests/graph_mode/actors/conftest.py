"""Scripts run with the actors as they are, unless somebody hands them a broken copy."""

from __future__ import annotations

from typing import Any

import pytest

from vmflow.graph_mode.actors import ActorSystem


@pytest.fixture
def system() -> Any:
    return ActorSystem
