"""bitsandbytes 0.50.2's kernels for GPUs in numpy, fp32 line by line: csrc/kernels.cu.

search() is dQuantize<0>() and quantize_2D(); cuda_step() kOptimizerStatic8bit2StateBlockwise<ADAM> and, of moments in 32 bits,
kOptimizer32bit2State<ADAM>; nf4() what Linear4bit computes with of a weight that quantize_4bit() has coded.
"""
import numpy as np
import torch
from bitsandbytes import functional

F = np.float32


def search(table, x):
    """The nearest value's index, by seven steps from the middle; halfway it is the one that the search ended at."""
    pivot, upper, lower = np.full(len(x), 127), np.full(len(x), 255), np.zeros(len(x), dtype=int)
    for step in (64, 32, 16, 8, 4, 2, 1):
        above = x > table[pivot]
        lower, upper = np.where(above, pivot, lower), np.where(above, upper, pivot)
        pivot = np.where(above, pivot + step, pivot - step)
    above = x > table[pivot]
    to_upper, to_lower = x > (table[upper] + table[pivot]) * F(0.5), x < (table[lower] + table[pivot]) * F(0.5)
    return np.where(above, np.where(to_upper, upper, pivot), np.where(to_lower, lower, pivot)).astype(np.uint8)


def code_maxima(maxima, mean, table):
    """Codes of the blocks' maxima (double quantisation), and the largest of each 256."""
    rest = maxima - mean
    parts = [rest[i:i + 256] for i in range(0, len(rest), 256)]
    most = np.array([np.abs(p).max() for p in parts], dtype=F)
    return np.concatenate([search(table, p * (F(1) / m)) for p, m in zip(parts, most)]), most


def nf4(weight, double):
    """A weight [out, in] as it comes back from NF4.  As one row: of rows that are no multiple of 64 bitsandbytes' kernel for the CPU
    counts blocks from the start of each row, which quantize_4bit() and the kernels for GPUs do not."""
    packed, state = functional.quantize_4bit(weight.float().flatten(), blocksize=64, quant_type="nf4")
    if double:
        maxima, table = state.absmax.numpy(), functional.create_dynamic_map(True).numpy()
        mean = F(maxima.astype(np.float64).mean())
        codes, most = code_maxima(maxima, mean, table)
        state.absmax = torch.from_numpy(table[codes] * np.repeat(most, 256)[:len(codes)] + mean)
    return functional.dequantize_4bit(packed, state).reshape(weight.shape)


def new_states(n, narrow):
    if not narrow:
        return {"m": np.zeros(n, dtype=F), "v": np.zeros(n, dtype=F)}
    blocks = -(-n // 256)
    return {"code1": np.zeros(n, dtype=np.uint8), "code2": np.zeros(n, dtype=np.uint8), "max1": np.zeros(blocks, dtype=F),
            "max2": np.zeros(blocks, dtype=F), "map1": functional.create_dynamic_map(True).numpy(),
            "map2": functional.create_dynamic_map(False).numpy()}


def per_element(maxima, n):
    return np.repeat(maxima, 256)[:n]


def cuda_step(s, p, g, a, step):
    """One step on p, in place, and the states."""
    n, b1, b2 = len(g), F(a["beta1"]), F(a["beta2"])
    c1, c2 = 1 - a["beta1"] ** step, np.sqrt(1 - a["beta2"] ** step)
    size, eps, decay = F(-a["lr"] * c2 / c1), F(c2 * a["eps"]), F(1 - a["lr"] * a["weight_decay"])
    narrow = "code1" in s
    m = s["map1"][s["code1"]] * per_element(s["max1"], n) if narrow else s["m"]
    v = s["map2"][s["code2"]] * per_element(s["max2"], n) if narrow else s["v"]
    m = m * b1 + (F(1) - b1) * g
    v = v * b2 + (F(1) - b2) * g * g
    p[:] = (p + size * (m / (np.sqrt(v) + eps))) * decay
    if not narrow:
        s["m"], s["v"] = m, v
        return
    for name, x in (("max1", m), ("max2", v)):
        s[name] = np.array([np.abs(x[i:i + 256]).max() for i in range(0, n, 256)], dtype=F)
    code1, code2 = search(s["map1"], m / per_element(s["max1"], n)), search(s["map2"], v / per_element(s["max2"], n))
    lost = np.signbit(s["map1"][code1]) != np.signbit(m)
    code1[lost & (m > 0)] += 1
    code1[lost & ~(m > 0)] -= 1
    s["code1"], s["code2"] = code1, code2
