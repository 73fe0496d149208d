"""Models inside asyncio servers: sessions, dynamic batching, deadlines, load shedding, streams, drain.

`InferenceSession` needs nothing but asyncio.  `app` makes an HTTP application of one, which needs starlette (the extra
"serve"); `python -m vmflow serve` is that with a server.  For applications of one's own `vmflow.serving.asgi` has
middleware, and `lifespan` is the life of a session in one.
"""

from __future__ import annotations

from .application import app as app
from .application import lifespan as lifespan
from .asgi import DisconnectScope as DisconnectScope
from .asgi import ErrorResponses as ErrorResponses
from .asgi import RequestScope as RequestScope
from .asgi import trace_id as trace_id
from .draining import drain_on_signal as drain_on_signal
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
