"""A small Kubernetes API in memory: what a scheduler extender and its fleet need of nodes, pods and watches.

It is trusted because one contract suite (`tests/contract`) passes against it and against the real
kube-apiserver. `store` and `api` do no I/O and take clock and UIDs from outside; `server` adds HTTP.

Not modelled: field ownership, finalizers, admission plugins, authorization and most validation. A strategic
merge patch is applied as a merge patch, so a list in it replaces the whole list.
"""
