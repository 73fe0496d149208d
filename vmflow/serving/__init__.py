"""Models inside asyncio servers: sessions, dynamic batching, deadlines, load shedding, streams, drain.

`InferenceSession` needs nothing but asyncio; what speaks HTTP is in `vmflow.serving.asgi` and `vmflow.serving.app`.
"""

from __future__ import annotations

from .errors import Draining as Draining
from .errors import Expired as Expired
from .errors import InvalidInput as InvalidInput
from .errors import NotReady as NotReady
from .errors import Overloaded as Overloaded
from .errors import ServingError as ServingError
from .session import InferenceSession as InferenceSession
from .specs import Dim as Dim
from .specs import TensorSpec as TensorSpec
from .statistics import Statistics as Statistics
