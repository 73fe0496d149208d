"""The ops, in one subpackage for each family.  Each module declares ops and the functions by which users call them."""
