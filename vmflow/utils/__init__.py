"""What surrounds a network; so far, the loading of data: `vmflow.utils.data`."""

from __future__ import annotations

from . import data as data
