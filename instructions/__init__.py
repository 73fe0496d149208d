"""What can be run: instructions, the policies that say what they do, and the builder that composes them.

Nothing here knows tensors' Python API, autograd or graphs.
"""

from .access_blob import AccessBlobByCallback as AccessBlobByCallback
from .barrier import Barrier as Barrier
from .barrier import GlobalSync as GlobalSync
from .blob import Blob as Blob
from .blob import Storage as Storage
from .blob import TensorMeta as TensorMeta
from .builder import InstructionsBuilder as InstructionsBuilder
from .builder import physical_run as physical_run
from .failure import Failure as Failure
from .instruction import Dependence as Dependence
from .instruction import Instruction as Instruction
from .multi_tensor_update import MultiTensorUpdate as MultiTensorUpdate
from .op_call import OpCall as OpCall
from .policy import InstructionPolicy as InstructionPolicy
from .release_tensor import ReleaseTensor as ReleaseTensor
