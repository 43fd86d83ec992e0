#!/bin/sh
# Runs the plugin with a Python of this machine that its compiled libraries are made for; no virtual environment, no pip.
link=$0
while [ -L "$link" ]; do
  target=$(readlink "$link")
  case $target in
  /*) link=$target ;;
  *) link=$(dirname "$link")/$target ;;
  esac
done
home=$(dirname "$link")

fits() { # PYTHON: whether it is there, and finds a library of its own version among ours
  "$1" -I -S "$home/fits.py" >/dev/null 2>&1
}

python=
for each in "${GPUTOPO_PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
  if fits "$each"; then
    python=$each
    break
  fi
done
if [ -z "$python" ]; then
  echo "kubectl gputopo: no CPython 3.11, 3.12, 3.13 or 3.14 is on the PATH; \$GPUTOPO_PYTHON may name one" >&2
  exit 2
fi
exec "$python" -I -S "$home/run.py" "${link##*/}" "$@"
