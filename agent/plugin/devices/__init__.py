"""Which devices the kubelet may offer: their names, their shares and MIG slices, and which are withheld."""
