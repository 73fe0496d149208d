"""The sharding rules of ops, by family; importing this package declares them."""

from . import dimensions, elementwise, indexing, layers, losses, products, views

__all__ = ["dimensions", "elementwise", "indexing", "layers", "losses", "products", "views"]
