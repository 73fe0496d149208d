"""The ops, in one subpackage for each family.  Most modules declare ops and the functions by which users call them."""
