"""C kernels for the CPU: emitted as source, compiled by the system's compiler, kept on disk, called through ctypes.

They are optional.  Where there is no compiler, or it fails, or VMFLOW_JIT is 0, everything runs on numpy alone.

`compiling` runs the compiler, `cache` keeps what it made, `loading` says what is there and lets a thread see to the
rest.  `elementwise` and `expressions` write the source of chains of elementwise ops; `kernels` and `arrays` call these
and what is written by hand in the ``.c`` files of this folder.  None of them knows tensors or graphs.
"""
