"""What the health machine makes of a sequence of facts."""
