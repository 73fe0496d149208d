"""Models inside asyncio servers: sessions, dynamic batching, deadlines, load shedding, streams, drain.

`InferenceSession` needs nothing but asyncio.  `app` makes an HTTP application of one, which needs starlette (the extra
"serve"); `python -m vmflow serve` is that with a server.  For applications of one's own `vmflow.serving.asgi` has
middleware, and `lifespan` is the life of a session in one.
"""

from .application import app as app, lifespan as lifespan
from .asgi import (
    DisconnectScope as DisconnectScope,
    ErrorResponses as ErrorResponses,
    RequestScope as RequestScope,
    trace_id as trace_id,
)
from .draining import drain_on_signal as drain_on_signal
from .errors import (
    Draining as Draining,
    Expired as Expired,
    InvalidInput as InvalidInput,
    NotReady as NotReady,
    Overloaded as Overloaded,
    ServingError as ServingError,
)
from .session import InferenceSession as InferenceSession
from .specs import Dim as Dim, TensorSpec as TensorSpec
from .statistics import Statistics as Statistics
