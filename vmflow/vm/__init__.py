"""The virtual machine: its engine decides when instructions may run, and the machine runs them."""

from . import process as process
from .engine import VirtualMachineEngine as VirtualMachineEngine
from .virtual_machine import (
    VirtualMachine as VirtualMachine,
    current_machine as current_machine,
    default_machine as default_machine,
)
