"""How strongly runs are isolated, and by what."""
