"""How ops are computed: numpy on the host, and C where a compiler has made the same."""
