#!/usr/bin/env python3
"""Orthant and Transformers read each other's folders and compute the same. tools/hf_check.sh runs it.

    python tools/golden/hf_check.py build/orthant [CASE ...]

Theirs: Transformers makes a small random model of each family and saves it with a tokenizer. Orthant scores it and
continues prompts with it as it is, imports it, exports the checkpoint.
Ours: Orthant trains a small model of each family and exports it.

Of each folder: Transformers loads it without a missing or unexpected tensor; per-token log-probabilities of `orthant eval` are
its own (LIMIT, relative, in norm); AutoTokenizer gives the ids of `orthant tokenizer encode` and has an end-of-text and a pad
token; a padded batch continued by generate() has the tokens of `orthant generate`, prompt by prompt, with one end-of-text
token and with several. The Python of docs/quickstart.md runs as it stands there. Of an import exported again: the same tensors bit for bit, the same special tokens and dropouts.
Exit: 0 all equal; 1 not, with the first difference.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig, MistralConfig,
                          PreTrainedTokenizerFast, Qwen2Config, Qwen3Config)

import compare_export

VOCAB, LIMIT, NEW_TOKENS = 400, 2e-5, 12
PROMPTS = ["The ", "A program is a list of instructions, and", "memory"]
TREE = Path(__file__).resolve().parents[2]
EOS = "<|endoftext|>"

SIZE = dict(hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, vocab_size=VOCAB)
SMALL_GPT2 = dict(n_embd=48, n_layer=2, n_head=4, n_positions=128, vocab_size=VOCAB, bos_token_id=0, eos_token_id=0)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
THEIRS = {
    "gpt2": GPT2Config(**SMALL_GPT2),
    "gpt2-erf": GPT2Config(**SMALL_GPT2, activation_function="gelu", attn_pdrop=0.25, embd_pdrop=0.0, resid_pdrop=0.125),
    "llama": LlamaConfig(**SIZE, rope_parameters=LLAMA3, rms_norm_eps=1e-5),
    "llama-biases": LlamaConfig(**SIZE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "mistral": MistralConfig(**{**SIZE, "num_attention_heads": 10}, head_dim=8, sliding_window=None),
    "qwen2": Qwen2Config(**SIZE, tie_word_embeddings=True, use_sliding_window=True, sliding_window=8, max_window_layers=2),
    "qwen3": Qwen3Config(**SIZE, head_dim=16, tie_word_embeddings=True),
}
OWN = {
    "gpt2": "model.family=gpt2",
    "gpt2-erf": "model.family=gpt2 model.gelu_erf=true model.dropout=0.125 model.attn_dropout=0.25",
    "llama": "model.family=llama model.kv_heads=2 model.rope_factor=4 model.rope_original_seq=32",
    "llama-biases": "model.family=llama model.qkv_bias=true model.out_bias=true model.mlp_bias=true model.tied=true",
    "qwen2": "model.family=llama model.kv_heads=1 model.qkv_bias=true",
    "qwen3": "model.family=llama model.kv_heads=2 model.qk_norm=true model.head_dim=16",
}
OWN_RUN = ("model.layers=2 model.hidden=48 model.heads=4 data.seq_len=64 train.steps=20 train.global_batch=8 "
           "train.micro_batch=8 optimizer.lr=3e-3 --quiet")


def fail(what):
    sys.exit(f"hf_check: FAILED: {what}")


class Check:
    def __init__(self, orthant, scratch):
        self.orthant, self.dir = str(Path(orthant).resolve()), Path(scratch)
        text = "\n\n".join(p.read_text() for p in [TREE / "README.md", *sorted((TREE / "docs").glob("*.md"))])
        self.text = self.dir / "text.txt"
        self.text.write_text(text[:60000])
        self.scored = self.dir / "scored.txt"
        self.scored.write_text(text[60000:64000])
        for kind in ("gpt2", "llama3", "qwen"):
            self.run("tokenizer", "train", f"--vocab-size={VOCAB}", f"--kind={kind}", f"--out={self.dir / kind}.json",
                     self.text)

    def tokenizer(self, name):
        """Of the kind that goes with the model: for model_type qwen2 AutoTokenizer cuts words Qwen's way, whatever
        tokenizer.json says."""
        kinds = {"qwen2": "qwen", "qwen3": "qwen", "gpt2": "gpt2", "gpt2-erf": "gpt2"}
        return self.dir / f"{kinds.get(name, 'llama3')}.json"

    def run(self, *words):
        words = [self.orthant, *map(str, words)]
        r = subprocess.run(words, capture_output=True)
        if r.returncode:
            fail(f"{' '.join(words)}: exit {r.returncode}: {r.stderr.decode(errors='replace')}")
        return r.stdout.decode(errors="replace")

    # ---- one folder ----

    def same_scores(self, orthant_reads, transformers_reads):
        path = self.dir / "scores.tsv"
        path.write_text(self.run("eval", orthant_reads, f"--text={self.scored}", "--logprobs", "data.seq_len=64"))
        if not compare_export.same_scores(transformers_reads, path, LIMIT):
            fail(f"{orthant_reads}: log-probabilities differ from those of Transformers")

    def same_tokens(self, folder):
        tok = AutoTokenizer.from_pretrained(folder)
        ours = self.run("tokenizer", "encode", f"--tokenizer={folder}", self.scored).split()
        theirs = tok(self.scored.read_text(), add_special_tokens=False)["input_ids"]
        if [int(i) for i in ours] != theirs:
            fail(f"{folder}: AutoTokenizer gives other ids than orthant tokenizer encode")
        if tok.eos_token != EOS or tok.pad_token is None:
            fail(f"{folder}: AutoTokenizer has eos_token {tok.eos_token}, pad_token {tok.pad_token}")
        return tok

    def continued(self, folder, prompt):
        out = self.run("generate", folder, f"--prompt={prompt}", "--temperature=0", "--logprobs", f"--tokens={NEW_TOKENS}")
        return [int(m[1]) for m in re.finditer(r"^(\d+)\t[-+.\deinf]+\t-?0x[0-9a-fp.+-]+\t", out, re.M)]

    def same_continuations(self, folder, orthant_reads=None):
        """A padded batch; the tokens of the first prompt, for others to stop at."""
        tok, model = self.same_tokens(folder), compare_export.load(folder)
        batch = tok(PROMPTS, return_tensors="pt", padding=True)
        if batch["attention_mask"].all():
            fail("the prompts are of one length: nothing was padded")
        eos = model.generation_config.eos_token_id
        eos = set(eos if isinstance(eos, list) else [eos])
        with torch.no_grad():
            out = model.generate(**batch, do_sample=False, max_new_tokens=NEW_TOKENS)
        result = []
        for prompt, row in zip(PROMPTS, out[:, batch["input_ids"].shape[1]:].tolist()):
            end = next((i for i, t in enumerate(row) if t in eos), len(row))
            ours = self.continued(orthant_reads or folder, prompt)
            if ours != row[:end]:
                fail(f"{folder}: {prompt!r} is continued by {ours}, in a batch of Transformers by {row[:end]}")
            result.append(row[:end])
        return result

    # ---- a case ----

    def keeps(self, name, a, b):
        """What config.json and generation_config.json of b must have from a; all ends of text stand in both of b."""
        x, y = (compare_export.load(f) for f in (a, b))
        for key in ("bos_token_id", "pad_token_id", "attn_pdrop", "embd_pdrop", "resid_pdrop",
                    "attention_dropout"):
            if getattr(x.config, key, None) != getattr(y.config, key, None):
                fail(f"{name}: {key} {getattr(x.config, key, None)} became {getattr(y.config, key, None)}")
        want = x.generation_config.eos_token_id
        for key in ("generation_config", "config"):
            if getattr(y, key).eos_token_id != want:
                fail(f"{name}: eos_token_id {want} became {getattr(y, key).eos_token_id} in {key}")
        if not compare_export.same_weights(a, b):
            fail(f"{name}: weights differ after import and export")

    def stops_at(self, folder, row):
        """From now on a second end-of-text token: one that `row` comes to, though not at its start."""
        token = next(t for i, t in enumerate(row) if i > 0 and t not in row[:i])
        path = folder / "generation_config.json"
        config = json.loads(path.read_text())
        eos = config["eos_token_id"]
        config["eos_token_id"] = (eos if isinstance(eos, list) else [eos]) + [token]
        path.write_text(json.dumps(config))
        return row.index(token)

    def theirs(self, name, config):
        folder = self.dir / f"theirs-{name}"
        tok = PreTrainedTokenizerFast(tokenizer_file=str(self.tokenizer(name)), eos_token=EOS, pad_token=EOS, padding_side="left")
        for key in ("bos_token_id", "eos_token_id"):
            setattr(config, key, tok.eos_token_id)
        torch.manual_seed(len(name))
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for key, p in model.named_parameters():    # large outside of embeddings: no token is repeated for ever
                p.copy_((0.05 if VOCAB in p.shape else 0.4) * torch.randn(p.shape) + (p.dim() == 1 and key.endswith("weight")))
        model.save_pretrained(folder)
        tok.save_pretrained(folder)
        self.same_scores(folder, folder)
        rows = self.same_continuations(folder)
        end = self.stops_at(folder, max(rows, key=lambda r: len(set(r))))
        stopped = self.same_continuations(folder)
        if not any(len(r) == end for r in stopped):
            fail(f"{folder}: no continuation ends at the second end-of-text token")
        imported, exported = self.dir / f"imported-{name}", self.dir / f"exported-{name}"
        self.run("ckpt", "import", folder, imported)
        self.run("ckpt", "export", imported, exported)
        self.same_scores(imported, folder)
        self.keeps(name, folder, exported)
        if self.same_continuations(exported, imported) != stopped:
            fail(f"{exported}: continues prompts otherwise than {folder}")
        self.run("ckpt", "export", imported, self.dir / "bf16", "--dtype=bf16")
        half = compare_export.load(self.dir / "bf16").state_dict()
        for key, value in compare_export.load(folder).state_dict().items():
            if not torch.equal(half[key], value.bfloat16().float()):
                fail(f"{name}: exported as bf16, {key} is not its nearest bf16")
        shutil.rmtree(self.dir / "bf16")

    def own(self, name, options):
        run, folder = self.dir / f"run-{name}", self.dir / f"own-{name}"
        self.run("train", f"data.path={self.text}", f"data.tokenizer={self.tokenizer(name)}", f"checkpoint.dir={run}",
                 *OWN_RUN.split(), *options.split())
        self.run("ckpt", "export", run, folder)
        self.same_scores(run, folder)
        self.same_continuations(folder, run)
        checkpoint = next((run / "checkpoints").glob("step-*"))     # as it is
        self.same_continuations(checkpoint)

    def snippet(self):
        """The Python of docs/quickstart.md, as it stands there, loads an exported folder and continues its prompt as `orthant generate` does."""
        code = re.search(r"```python\n(.*?)```", (TREE / "docs/quickstart.md").read_text(), re.S).group(1)
        shutil.copytree(self.dir / "own-llama", self.dir / "hf-folder")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            fail(f"the Python of docs/quickstart.md: {done.stderr[-2000:]}")
        ours = self.run("generate", self.dir / "hf-folder", "--prompt=The ", "--tokens=60", "--temperature=0")
        if not done.stdout.startswith("The ") or done.stdout.rstrip("\n")[:60] != ours.rstrip("\n")[:60]:
            fail(f"the Python of docs/quickstart.md prints {done.stdout!r}, orthant generate {ours!r}")

    # ---- event files ----

    def tensorboard(self):
        """What TensorBoard reads of a run that was resumed is what metrics.jsonl has, each step once."""
        run = self.dir / "events"
        words = ["train", *OWN["llama"].split(), *OWN_RUN.split(), f"data.path={self.text}", f"checkpoint.dir={run}",
                 "log.tensorboard=true", "train.eval_every=5", "schedule.name=constant"]
        self.run(*words)
        self.run(*words, "train.steps=30", "--resume")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        for tag, key in (("loss", "loss"), ("lr", "lr"), ("grad_norm", "grad_norm"), ("eval/loss", "eval_loss")):
            wanted = [(r["step"], r[key]) for r in rows if key in r]
            got = [(e.step, e.value) for e in events.Scalars(tag)]
            if [s for s, _ in wanted] != [s for s, _ in got] or any(abs(a - b) > 1e-6 * abs(a) for (_, a), (_, b) in zip(wanted, got)):
                fail(f"TensorBoard reads another {tag} than metrics.jsonl has: {got} for {wanted}")


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    names = sys.argv[2:]
    print(f"Orthant beside Transformers {transformers.__version__}, PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as scratch:
        check = Check(sys.argv[1], scratch)
        for which, cases in (("theirs", THEIRS), ("own", OWN)):
            for name, case in cases.items():
                if not names or name in names:
                    print(f"-- {which}: {name}", flush=True)
                    getattr(check, which)(name, case)
        if not names or "llama" in names:
            print("-- docs/quickstart.md", flush=True)
            check.snippet()
        print("-- TensorBoard", flush=True)
        check.tensorboard()
    print("hf_check: all equal")


if __name__ == "__main__":
    main()
