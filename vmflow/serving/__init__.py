"""Models inside asyncio servers: sessions, dynamic batching, deadlines, load shedding, streams, drain.

`InferenceSession` needs nothing but asyncio.  `app` makes it an HTTP application, which needs starlette (the extra
"serve"); `python -m vmflow serve` runs it in a server.  For other ASGI applications, `vmflow.serving.asgi` has
middleware, and `lifespan` starts and ends a session with them.
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
