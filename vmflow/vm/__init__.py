"""When instructions run: the pure engine and the machine that drives it."""

from . import process as process
from .engine import VirtualMachineEngine as VirtualMachineEngine
from .virtual_machine import VirtualMachine as VirtualMachine, default_machine as default_machine
