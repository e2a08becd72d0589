#!/usr/bin/env python3
"""Writes a trace as PyTorch's profiler would of a recorded module's steps on an H100, of which every time is known.

    make_recorded.py ../module/resnet.json autocast 512 64 resnet_h100.json.gz       MODEL PRECISION MICRO_BATCH SIZE TRACE

The kernels are the recording's, in its order, without recompute.  Products reach 0.2 of the peak, convolutions 0.1, all else
1.2e12 B/s and 2 us a kernel; noise is 3 % either way.  Names are cuDNN's and cuBLAS's on Hopper; a convolution of a layout
that cuDNN turns has the kernels that turn it beside its own, and what cuDNN does of a recurrence is several products."""
import gzip
import json
import sys

PEAK, STREAM, STEPS = 989.4e12, 1.2e12, 4
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
CONV = "sm80_xmma_%s_implicit_gemm_bf16f32_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"
TURN = "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, (cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t<float>)"
FLASH = {"forward": ["void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128>>(pytorch_flash::Flash_fwd_params)"],
         "backward": ["void pytorch_flash::flash_bwd_dot_do_o_kernel<true>(pytorch_flash::Flash_bwd_params)",
                      "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<true>(pytorch_flash::Flash_bwd_params)"]}
RNN = ["sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_cudnn", "void LSTM_elementWise_fp<float, float, float>(int, int, int)"]
ELEMENT = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)"
ADAMW = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>>(int)"


def at(size, b, s):
    """A polynomial's value."""
    return size if isinstance(size, int) else int(eval(str(size).replace("^", "**"), {"b": b, "s": s}))


def dims_of(k, product):
    """A profiler's record_shapes, of a convolution's backward: the gradient, the input and the weight of a window of one that has as many numbers."""
    if not k["op"].startswith("convolution_backward"):
        return {}
    groups, m, n, inner = product
    rows, out, inner = (m, inner, n) if k["op"].endswith("dX") else (inner, m, n)
    return {"Input Dims": [[1, groups * out, rows, 1], [1, groups * inner, rows, 1], [groups * out, inner, 1, 1], [], [], [], [], [], [], []]}


class Machine:
    def __init__(self):
        self.events, self.seed, self.host, self.tail, self.id = [], 7, 1e6, 0, 0

    def mark(self, name, start, cat="user_annotation", **args):
        self.events.append(dict(ph="X", cat=cat, name=name, pid=1, tid=1, ts=round(start, 3), dur=round(self.host + 1 - start, 3), args=args))

    def launch(self, name, seconds, external):
        self.host += 2
        self.id += 1
        self.seed = (self.seed * 1103515245 + 12345) % (1 << 31)
        start, us = max(self.host + 3, self.tail), round(1e6 * seconds * (1 + 0.06 * (self.seed / (1 << 31) - 0.5)), 3)
        self.tail = start + us
        self.events.append(dict(ph="X", cat="cuda_runtime", name="cudaLaunchKernel", pid=1, tid=1, ts=round(self.host, 3), dur=1, args=dict(correlation=self.id)))
        self.events.append(dict(ph="X", cat="kernel", name=name, pid=0, tid=7, ts=round(start, 3), dur=us,
                                args={"stream": 7, "correlation": self.id, "External id": external}))

    def kernel(self, k, b, s, now):
        external, start = self.id + 1, self.host + 1
        size, product = at(k.get("bytes", 0), b, s), [at(x, b, s) for x in k.get("product", [])]
        streams = size / STREAM + 2e-6
        if k["class"] == "conv":
            self.launch(TURN, streams / 2, external)
            what = "fprop" if now == "forward" else "wgrad" if k["op"].endswith("dW") else "dgrad"
            self.launch(CONV % what, 2 * product[0] * product[1] * product[2] * product[3] / (0.1 * PEAK) + 2e-6, external)
        elif product:
            self.launch(GEMM, 2 * product[0] * product[1] * product[2] * product[3] / (0.2 * PEAK) + 2e-6, external)
        elif k["class"] == "attention":
            for name in FLASH[now]:
                self.launch(name, streams, external)
        elif k["class"] == "recurrence":
            for name in 4 * RNN:
                self.launch(name, streams / 8, external)
        elif size:
            self.launch(ELEMENT, streams, external)
        self.mark("aten::" + k["op"].split(" ")[0], start, "cpu_op", **{"External id": external}, **dims_of(k, product))


def step(m, doc, program, b, s, number):
    begin = m.host
    for now in ("forward", "backward"):
        start = m.host
        order = ["first"] + program["units"] + ["last"]
        for piece in order if now == "forward" else order[::-1]:
            for k in program["pieces"][piece][now]:
                m.kernel(k, b, s, now)
        if now == "backward":
            m.mark("autograd::engine::evaluate_function: ConvolutionBackward0", start, "cpu_op")
    start = m.host
    elements = 0
    for _, shape, *_ in doc["tensors"]:
        n = 1
        for d in shape:
            n *= d
        elements += n
    for _ in range(4):
        m.launch(ADAMW, 28 * elements / 4 / STREAM, -1)
    m.mark("Optimizer.step#AdamW.step", start)
    m.host = max(m.host, m.tail)
    m.mark("ProfilerStep#%d" % number, begin)


def main():
    path, precision, b, s, out = sys.argv[1:]
    with open(path) as f:
        doc = json.load(f)
    program = next(p for p in doc["programs"] if p["precision"] == precision and p["recompute"] == "none" and "views" not in p)
    m = Machine()
    for i in range(STEPS):
        step(m, doc, program, int(b), int(s), 10 + i)
        m.host += 10
    trace = dict(schemaVersion=1, deviceProperties=[dict(id=0, name="NVIDIA H100 80GB HBM3")], traceEvents=m.events)
    with gzip.GzipFile(out, "wb", mtime=0) as f:
        f.write(json.dumps(trace, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
