"""What the order of sums costs on one GPU, and whose bits depend on what: questions the first probe left open.
usage: ask.py OUT_FOLDER   (PyTorch with CUDA; about a minute)"""
import subprocess, sys, time, traceback
import numpy as np, torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend

out = sys.argv[1]
dev = "cuda"
text = open(out + "/ask.txt", "w")


def say(*words):
    line = " ".join(str(w) for w in words)
    print(line, flush=True)
    text.write(line + "\n")
    text.flush()


def ms(f, n=20, rounds=5):
    """Median over rounds of the mean of n calls."""
    f(), f()
    got = []
    for _ in range(rounds):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        for _ in range(n):
            f()
        b.record()
        b.synchronize()
        got.append(a.elapsed_time(b) / n)
    return sorted(got)[rounds // 2]


def rand(*shape):
    return torch.randn(*shape, device=dev, dtype=torch.bfloat16)


def same(a, b):
    return float((a.view(torch.int16 if a.element_size() == 2 else torch.int32) ==
                  b.view(torch.int16 if b.element_size() == 2 else torch.int32)).float().mean())


def sustained():
    a, b = rand(8192, 8192), rand(8192, 8192)
    c = torch.empty(8192, 8192, device=dev, dtype=torch.bfloat16)
    rows = []
    for i in range(24):
        t0 = time.time()
        s, e = torch.cuda.Event(True), torch.cuda.Event(True)
        s.record()
        for _ in range(100):
            torch.mm(a, b, out=c)
        e.record()
        if i % 6 == 5:
            q = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader"],
                               capture_output=True, text=True).stdout.strip()
        else:
            q = ""
        e.synchronize()
        rows.append((round(100 * 2 * 8192**3 / s.elapsed_time(e) / 1e9, 1), q))
    say("sustained bf16 8192^3, TFLOP/s of each 100 products:", *[r[0] for r in rows])
    say("sustained clocks:", *[r[1] for r in rows if r[1]])


def weight_gradients():
    for n, k, tokens, chunks in ((2304, 768, 16384, (1024, 2048, 4096)), (768, 768, 16384, (1024, 2048, 4096)),
                                 (3072, 768, 16384, (1024, 4096)), (768, 3072, 16384, (1024, 4096)),
                                 (50304, 768, 16384, (1024,)), (6144, 4096, 8192, (2048, 4096)),
                                 (28672, 4096, 8192, (4096,)), (4096, 14336, 8192, (4096,))):
        dy, x = rand(tokens, n), rand(tokens, k)
        flop = 2.0 * n * k * tokens
        whole = ms(lambda: torch.mm(dy.t(), x, out_dtype=torch.float32))
        line = f"dW {n}x{k} over {tokens}: whole {flop / whole / 1e9:.0f} TFLOP/s"
        for chunk in chunks:
            b = tokens // chunk
            p, q = dy.view(b, chunk, n).transpose(1, 2), x.view(b, chunk, k)
            parts = torch.bmm(p, q, out_dtype=torch.float32)
            alone = torch.stack([torch.mm(p[i], q[i], out_dtype=torch.float32) for i in range(b)])
            t_b = ms(lambda: torch.bmm(p, q, out_dtype=torch.float32), n=10)
            t_s = ms(lambda: torch.sum(parts, 0), n=10)
            t_one = ms(lambda: [torch.mm(p[i], q[i], out_dtype=torch.float32) for i in range(b)], n=5)
            line += (f" | by {chunk}: batched {flop / t_b / 1e9:.0f}, one by one {flop / t_one / 1e9:.0f}, sum {t_s * 1e3:.0f} us,"
                     f" batched+sum {flop / (t_b + t_s) / 1e9:.0f}; batched = alone {same(parts, alone):.4f}")
            del parts, alone
        say(line)


def attention():
    def run(q, k, v, g, backend):
        q, k, v = (t.detach().clone().requires_grad_(True) for t in (q, k, v))
        with sdpa_kernel(backend):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        o.backward(g)
        return o.detach(), q.grad, k.grad, v.grad

    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        for deterministic in (False, True):
            torch.use_deterministic_algorithms(deterministic)
            for b, h, kv, t, d in ((16, 12, 12, 1024, 64), (2, 32, 8, 4096, 128), (2, 32, 32, 4096, 128)):
                try:
                    if kv != h and name == "flash":
                        continue
                    q, k, v, g = rand(b, h, t, d), rand(b, kv, t, d), rand(b, kv, t, d), rand(b, h, t, d)
                    full = run(q, k, v, g, backend)
                    again = run(q, k, v, g, backend)
                    half = [x[:b // 2] for x in (q, k, v, g)]
                    one = [x[b - 1:] for x in (q, k, v, g)]
                    heads = [q[:, :h // 2], k[:, :kv // 2], v[:, :kv // 2], g[:, :h // 2]]
                    heads4 = [q[:, h - h // 4:], k[:, kv - kv // 4:], v[:, kv - kv // 4:], g[:, h - h // 4:]]
                    fl = 4 * b * h * t * t * d / 2
                    with sdpa_kernel(backend):
                        tf = ms(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != h))
                        qq, kk, vv = (x.detach().clone().requires_grad_(True) for x in (q, k, v))
                        o = F.scaled_dot_product_attention(qq, kk, vv, is_causal=True, enable_gqa=kv != h)
                        tb = ms(lambda: torch.autograd.grad(o, (qq, kk, vv), g, retain_graph=True))

                    def eq(parts, pick):
                        return "/".join(f"{same(a.contiguous(), pick(f).contiguous()):.3f}"
                                        for a, f in zip(run(*[p.contiguous() for p in parts], backend), full))
                    say(f"attention {name} {'deterministic' if deterministic else 'default'} {b}x{h}/{kv}x{t}x{d}:",
                        f"fwd {fl / tf / 1e9:.0f} bwd {2.5 * fl / tb / 1e9:.0f} TFLOP/s; o/dq/dk/dv equal: again",
                        "/".join(f"{same(a, f):.3f}" for a, f in zip(again, full)),
                        "half batch", eq(half, lambda f: f[:b // 2]), "last sequence", eq(one, lambda f: f[b - 1:]),
                        "half heads", eq(heads, lambda f: f[:, :f.shape[1] // 2]),
                        "last quarter of heads", eq(heads4, lambda f: f[:, f.shape[1] - f.shape[1] // 4:]))
                except Exception as e:
                    say(f"attention {name} {deterministic} {b}x{h}/{kv}x{t}x{d} failed:", repr(e)[:200])
    torch.use_deterministic_algorithms(False)


def copies():
    n = 1 << 29
    host_a, host_b = torch.empty(n, dtype=torch.uint8, pin_memory=True), torch.empty(n, dtype=torch.uint8, pin_memory=True)
    dev_a, dev_b = torch.empty(n, dtype=torch.uint8, device=dev), torch.empty(n, dtype=torch.uint8, device=dev)
    up, down, main = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
    a, b = rand(8192, 8192), rand(8192, 8192)
    c = torch.empty_like(a)

    def go(do_up, do_down, products):
        torch.cuda.synchronize()
        ev = {}
        for stream, on, f in ((up, do_up, lambda: dev_a.copy_(host_a, non_blocking=True)),
                              (down, do_down, lambda: host_b.copy_(dev_b, non_blocking=True))):
            if on:
                with torch.cuda.stream(stream):
                    s, e = torch.cuda.Event(True), torch.cuda.Event(True)
                    s.record()
                    for _ in range(8):
                        f()
                    e.record()
                    ev[stream] = s, e
        if products:
            s, e = torch.cuda.Event(True), torch.cuda.Event(True)
            s.record()
            for _ in range(products):
                torch.mm(a, b, out=c)
            e.record()
            ev[main] = s, e
        torch.cuda.synchronize()
        return {k: s.elapsed_time(e) for k, (s, e) in ev.items()}

    for up_on, down_on, products in ((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 40), (1, 1, 40)):
        go(up_on, down_on, products)
        r = go(up_on, down_on, products)
        say("copies", "up" if up_on else "", "down" if down_on else "", f"{products} products:",
            *[f"{n_} {8 * n / r[s] / 1e6:.1f} GB/s" for n_, s in (("up", up), ("down", down)) if s in r],
            f"products {products * 2 * 8192**3 / r[main] / 1e9:.0f} TFLOP/s" if main in r else "")


def fp8_order():
    saved = {}
    one = torch.ones((), device=dev)
    for k in (128, 256, 512, 2048):
        torch.manual_seed(k)
        a = (torch.randn(128, k, device=dev) * 2).to(torch.float8_e4m3fn)
        b = (torch.randn(128, k, device=dev) * 2).to(torch.float8_e4m3fn)
        saved[f"a{k}"], saved[f"b{k}"] = a.view(torch.uint8).cpu().numpy(), b.view(torch.uint8).cpu().numpy()
        for fast in (True, False):
            r = torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=fast)
            saved[f"c{k}_{'fast' if fast else 'promoted'}"] = r.cpu().numpy()
            big_a = a.repeat(64, 1)
            big = torch._scaled_mm(big_a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=fast)
            say(f"fp8 K={k} fast={fast}: rows equal in 64 times as many {same(big[128 * 63:], r):.4f}")
    np.savez(out + "/fp8.npz", **saved)


torch.manual_seed(1)
say("torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), torch.cuda.get_device_name())
for f in (weight_gradients, fp8_order, attention, copies, sustained):
    t0 = time.time()
    try:
        f()
    except Exception:
        say(f.__name__, "failed:", traceback.format_exc()[-600:])
    say(f"-- {f.__name__} took {time.time() - t0:.1f} s")
