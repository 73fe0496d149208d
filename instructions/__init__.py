"""Instructions, the policies that run them, and the builder that composes them.

No module of this package imports the Python API of tensors, autograd or graphs.
"""

from .access_blob import AccessBlobByCallback as AccessBlobByCallback
from .allocate_tensor import AllocateTensor as AllocateTensor
from .barrier import Barrier as Barrier, GlobalSync as GlobalSync
from .blob import Blob as Blob, Storage as Storage, TensorMeta as TensorMeta
from .builder import InstructionsBuilder as InstructionsBuilder, physical_run as physical_run
from .deferred import Deferred as Deferred
from .failure import Failure as Failure
from .fuse import FuseInstructionPolicy as FuseInstructionPolicy
from .instruction import Dependence as Dependence, Instruction as Instruction
from .launch_lazy_job import LaunchLazyJob as LaunchLazyJob
from .multi_tensor_update import MultiTensorUpdate as MultiTensorUpdate
from .op_call import OpCall as OpCall, op_call as op_call
from .policy import InstructionPolicy as InstructionPolicy
from .release_tensor import ReleaseTensor as ReleaseTensor
from .scope import Scope as Scope
from .stream_events import (
    StreamRecordEvent as StreamRecordEvent,
    StreamWait as StreamWait,
    StreamWaitEvent as StreamWaitEvent,
)
from .touch_tensors import TouchTensors as TouchTensors
