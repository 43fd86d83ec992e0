"""One folder for each feature. A feature imports the core and the kit, and no other feature."""
