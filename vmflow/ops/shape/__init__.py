"""Views, and ops that arrange elements anew."""
