"""Which devices a container gets: those of its plan, else the best that are free and promised to no other pod."""
