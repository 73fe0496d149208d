"""The ops, by family.  Each module declares its ops and the functions that users call."""
