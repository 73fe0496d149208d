"""Record the instructions of a program with their times: `profile`, under PyTorch's names.

with flow.profiler.profile() as prof:
    loss = step(batch)
    loss.item()
print(prof.key_averages().table(row_limit=10))
prof.export_chrome_trace("trace.json")      # to be opened in chrome://tracing or ui.perfetto.dev
"""

from .profiling import profile as profile, record_function as record_function
from .schedules import ProfilerAction as ProfilerAction, schedule as schedule
