"""Modules compiled into graphs.  This package owns `nn.Graph`; it is the one place that may import everything else."""
