"""Who holds what: claims, what containers hold, and what proves that a claim has ended."""
