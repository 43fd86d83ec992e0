"""The queue: pods behind our scheduling gate are planned together, and opened once they have a place; gangs start whole."""
