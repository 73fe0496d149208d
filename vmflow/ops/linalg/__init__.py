"""Products and decompositions of matrices, and distances."""
