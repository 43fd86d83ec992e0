"""How a container is kept inside its share of a GPU's memory: the strongest way that the node has."""
