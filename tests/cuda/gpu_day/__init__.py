"""All that is to be tried on the first day with a GPU, in one command of under nine minutes.

    python -m tests.cuda.gpu_day --out DIR

It compares the device with the CPU and takes the figures; DIR/report.md has the findings.  With
``VMFLOW_CUDA=emulated`` everything runs on an emulated device, with smaller sizes.
"""
