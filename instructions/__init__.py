"""Instructions, the policies that run them, and the builder that composes them.

Nothing here knows tensors' Python API, autograd or graphs.
"""

from .access_blob import AccessBlobByCallback as AccessBlobByCallback
from .allocate_tensor import AllocateTensor as AllocateTensor
from .barrier import Barrier as Barrier
from .barrier import GlobalSync as GlobalSync
from .blob import Blob as Blob
from .blob import Storage as Storage
from .blob import TensorMeta as TensorMeta
from .builder import InstructionsBuilder as InstructionsBuilder
from .builder import physical_run as physical_run
from .deferred import Deferred as Deferred
from .failure import Failure as Failure
from .fuse import FuseInstructionPolicy as FuseInstructionPolicy
from .instruction import Dependence as Dependence
from .instruction import Instruction as Instruction
from .launch_lazy_job import LaunchLazyJob as LaunchLazyJob
from .multi_tensor_update import MultiTensorUpdate as MultiTensorUpdate
from .op_call import OpCall as OpCall
from .op_call import op_call as op_call
from .policy import InstructionPolicy as InstructionPolicy
from .release_tensor import ReleaseTensor as ReleaseTensor
from .scope import Scope as Scope
from .stream_events import StreamRecordEvent as StreamRecordEvent
from .stream_events import StreamWait as StreamWait
from .stream_events import StreamWaitEvent as StreamWaitEvent
from .touch_tensors import TouchTensors as TouchTensors
