"""Our Node object: what we publish there, and what we read from it."""
