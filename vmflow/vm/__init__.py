"""When instructions run: the engine, which decides, and the machine, which drives the engine."""

from . import process as process
from .engine import VirtualMachineEngine as VirtualMachineEngine
from .virtual_machine import (
    VirtualMachine as VirtualMachine,
    current_machine as current_machine,
    default_machine as default_machine,
)
