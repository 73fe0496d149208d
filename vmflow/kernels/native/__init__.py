"""C kernels for the CPU: emitted as source, compiled by the system's compiler, kept on disk, called through ctypes.

They are optional.  Where there is no compiler, or it fails, or VMFLOW_JIT is 0, everything runs on numpy alone.

`compiling` runs the compiler, `cache` keeps its libraries on disk, and `loading` loads them, with a thread that
compiles those that are missing.  `functions` finds a function that is written by hand in the ``.c`` files of this
folder; `elementwise`, `expressions` and `blocks` write the source of chains of elementwise ops, which `loops` calls.

`arrays` has what all callers share: `InC`, a function as it is called from one place, and `NativeCall`, a function with
its arguments.  `call_site` remembers calls, and `team` shares their work out among threads.  The other modules call the
functions of one family each.  None of them knows tensors or graphs.
"""
