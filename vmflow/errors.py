"""The exceptions of vmflow, and its warnings.

    Exception
     +-- RuntimeError
     |    +-- InternalError            vmflow contradicts itself: please report it, with the story it prints
     |    +-- VirtualMachineClosed     work was issued to a machine that has been closed
     |    +-- DeviceUnavailable        the device does not exist here, or its library is not installed
     +-- Warning
          +-- RuntimeWarning
               +-- BlockingCallWarning a blocking read on a running event loop's thread

A caller's mistake raises the built-in ValueError, TypeError, IndexError or RuntimeError that a PyTorch user expects, at
the call.  A kernel's failure raises whatever the kernel raised, when its result is looked at.
"""

from __future__ import annotations


class InternalError(RuntimeError):
    """vmflow contradicts itself.  Please report it, with the story in the message."""


class VirtualMachineClosed(RuntimeError):
    """Work was dropped because, or issued after, its virtual machine was closed."""


class DeviceUnavailable(RuntimeError):
    """The device does not exist on this machine, or the library behind it is not installed."""


class BlockingCallWarning(RuntimeWarning):
    """A blocking read on a running event loop's thread: nothing else on the loop runs meanwhile."""
