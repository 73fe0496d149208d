"""Most ops that read or write chosen elements."""
