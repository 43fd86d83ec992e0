"""The best that any rule could do on one or two machines, exactly, beside what the product and its peers do there."""
