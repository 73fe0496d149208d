"""C kernels for the CPU: emitted as source, compiled by the system's compiler, kept on disk, called through ctypes.

They are optional.  Where there is no compiler, or it fails, or VMFLOW_JIT is 0, everything runs on numpy alone.

`compiling` runs the compiler, `cache` keeps its libraries on disk, and `loading` loads them, with a thread that
compiles the missing ones.  `functions` finds a function that is written by hand in the ``.c`` files of this folder.

`arrays` is shared by all callers: `InC`, a C function with its remembered calls, and `NativeCall`, a C function with
its arguments.  `call_site` remembers calls, and `team` shares their work among threads.  Each of the other modules
calls the functions of one family.  No module here knows tensors or graphs.
"""
