#!/bin/sh
# Makes the virtual environment of the peers, outside the tree, and prints the path of its python.
#
#   tools/bench/peers.sh            python="$(tools/bench/peers.sh)"
#
# Packages come from whatever index pip is configured for. Nothing else is installed or changed.
set -eu
venv="${XDG_CACHE_HOME:-$HOME/.cache}/orthant-peers"
stamp="$venv/.complete-1"                   # raise the number when the list below changes
if [ ! -e "$stamp" ]; then
    echo "peers: setting up $venv (PyTorch is several GB)" >&2
    python3 -m venv "$venv" >&2 || {
        echo "peers: python3 has no venv module (Debian: apt-get install python3-venv python3-dev)" >&2
        exit 1
    }
    "$venv/bin/pip" install --quiet torch numpy transformers tokenizers safetensors >&2
    : >"$stamp"
fi
echo "$venv/bin/python"
