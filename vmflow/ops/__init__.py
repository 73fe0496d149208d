"""The ops, most of them in one subpackage for each family.  Most modules declare ops and the functions that call them."""
