"""The image: built by buildah as `make image` builds it, on a base made of Debian's packages where no registry is reached."""
