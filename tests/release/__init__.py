"""Makes a release: its number and its notes in the files, what people download, and the tag."""
