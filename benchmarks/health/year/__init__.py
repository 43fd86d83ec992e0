"""A year of GPUs that fall sick, on a simulated fleet: what each policy loses, and what it hands to jobs."""
