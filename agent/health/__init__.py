"""Whether a GPU is fit for new pods, judged by what was told of it over time; no I/O, and no clock of its own."""
