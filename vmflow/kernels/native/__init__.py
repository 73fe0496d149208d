"""C kernels for the CPU: compiled from source by the system's compiler, kept on disk, called through ctypes.

They are optional.  Where there is no compiler, or it fails, or VMFLOW_JIT is 0, numpy computes instead.

`compiling` runs the compiler, `cache` keeps its libraries on disk, and `loading` loads them, with a thread that
compiles the missing ones.  `functions` finds functions of the libraries made from the ``.c`` files of this folder.

Most callers use `arrays`: `InC`, a C function with its remembered calls, and `NativeCall`, a C function with its
arguments.  `call_site` remembers calls, and `team` shares their work among threads.
"""
