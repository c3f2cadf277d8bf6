#!/bin/bash
# hf_check.sh BUILD | setup -- Orthant and Hugging Face Transformers read each other's folders and compute the same.
#
# Makes a virtual environment outside of the tree, once, with the packages below from whatever index pip is configured for; setup: only that.
# Then tools/golden/hf_check.py, which also has TensorBoard read what a run wrote for it. Fails, loudly, where the packages cannot be had: nothing is passed over.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
versions=(torch==2.15.0 transformers==5.23.0 tokenizers==0.23.3 safetensors==0.8.0 numpy==2.4.6 tensorboard==2.21.0)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/orthant-hf"
stamp="$venv/.$(IFS=,; echo "${versions[*]}")"

if [[ ! -e $stamp ]]; then
  echo "hf_check: setting up $venv: ${versions[*]}"
  rm -rf "$venv"
  python3 -m venv "$venv" || {
    echo "hf_check: python3 has no venv module (Debian: apt-get install python3-venv)" >&2
    exit 1
  }
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${versions[@]}" || {
    echo "hf_check: FAILED: these packages cannot be installed (no network?). Nothing was checked." >&2
    exit 1
  }
  : >"$stamp"
fi
[[ $build != setup ]] || exit 0
HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 "$venv/bin/python" tools/golden/hf_check.py "$build/orthant"
