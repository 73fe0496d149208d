"""Views, and ops that rearrange elements."""
