"""The core at work: filter calls and binds in their order, work between calls, and what a feature is."""
