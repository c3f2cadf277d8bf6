#!/usr/bin/env python3
"""Whether Transformers computes the same logits from two folders.

  check_hf_export.py record FOLDER LOGITS       logits of fixed tokens, as a safetensors file
  check_hf_export.py compare FOLDER LOGITS [T]  exit 1 unless the folder's are within T of them (0: same bits)

FOLDER is anything AutoModelForCausalLM loads: a model of others, `orthant ckpt export`, a checkpoint
step. Needs torch, transformers and safetensors; not part of the build or the tests.
"""
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM


def logits_of(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(key):
            sys.exit(f"{folder}: {key}: {sorted(info[key])[:5]}")
    model.eval()
    config = model.config
    length = min(config.max_position_embeddings, 24)
    ids = torch.randint(0, config.vocab_size, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return ids, model(ids).logits


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("record", "compare"):
        sys.exit(__doc__)
    _, verb, folder, path = sys.argv[:4]
    ids, logits = logits_of(folder)
    if verb == "record":
        save_file({"input_ids": ids, "logits": logits}, path)
        return
    tolerance = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    want = load_file(path)
    if not torch.equal(want["input_ids"], ids):
        sys.exit(f"{folder}: other tokens: another vocabulary or context")
    worst = (logits - want["logits"]).abs().max().item()
    print(f"{folder}: logits differ by at most {worst:g}")
    sys.exit(0 if worst <= tolerance else 1)


if __name__ == "__main__":
    main()
