#!/usr/bin/env python3
"""Writes traces as PyTorch's profiler would of a llama under FSDP2 on 8 H100s, of which every time is known.

    tests/golden/kineto/make_fsdp2_h100.py tests/golden/kineto

The model is plan_fsdp2_h100.json's: 4 blocks of width 2048, micro-batch 4 x 2048 tokens, bf16.  The machine is one that
no datasheet has: products reach between 0.34 and 0.47 of the peak by their shape, kernels that live off memory
1.4e12 B/s, collectives 150 GB/s; a kernel that begins beside a collective takes 1.2 times as long; all with noise of
3 % either way from a generator that is written out below.  Kernels have names as torch 2.5 with CUDA 12.4 writes
them; norms are one kernel here where transformers has six, since a stretch between two products is known as a whole.
Two files: ranks 0 and 1.  Rank 1 comes to every collective 40 us later than rank 0, which therefore waits for it.
"""
import gzip, json, sys

LAYERS, WIDTH, HEADS, FFN, VOCAB, SEQ, BATCH, WORLD = 4, 2048, 16, 5632, 32000, 2048, 4, 8
TOKENS, PEAK, STREAM, LINK, STEPS = SEQ * BATCH, 989.4e12, 1.4e12, 150e9, 8
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
FWD = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>>(pytorch_flash::Flash_fwd_params)"
BWD = ["void pytorch_flash::flash_bwd_dot_do_o_kernel<true>(pytorch_flash::Flash_bwd_params)",
       "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<true>(pytorch_flash::Flash_bwd_params)",
       "void pytorch_flash::flash_bwd_convert_dq_kernel<true>(pytorch_flash::Flash_bwd_params)"]
ANGLES = "void gemmk1_kernel<int, float, 256, 5, false, false, false, false, cublasGemvTensorStridedBatched<float const>>(int)"
ELEMENT = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)"
NORM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(float)"
SPLIT = "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel<false>(char**)"
CAT = "void at::native::chunk_cat_cuda_kernel<float, c10::BFloat16>(char**)"
ADAMW = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>>(int)"


class Machine:
    def __init__(self, rank):
        self.rank, self.events, self.seed, self.host, self.tail, self.id = rank, [], 7, 1e6, {}, 0
        self.colls = []

    def noise(self):
        self.seed = (self.seed * 1103515245 + 12345) % (1 << 31)
        return 1 + 0.06 * (self.seed / (1 << 31) - 0.5)

    def mark(self, name, start, cat="user_annotation"):
        self.events.append(dict(ph="X", cat=cat, name=name, pid=1, tid=1, ts=round(start, 3), dur=round(self.host + 1 - start, 3)))

    def launch(self, stream, name, us, after=0.0, cat="kernel", **args):
        """The kernel's end.  The host takes 2 us for each launch."""
        self.host += 2
        self.id += 1
        start = max(self.host + 3, self.tail.get(stream, 0), after)
        if stream == 7 and any(a <= start < b for a, b in self.colls):
            us *= 1.2
        us = round(us, 3)
        self.tail[stream] = start + us
        self.events.append(dict(ph="X", cat="cuda_runtime", name="cudaLaunchKernel", pid=1, tid=1, ts=round(self.host, 3), dur=1,
                                args=dict(correlation=self.id)))
        self.events.append(dict(ph="X", cat=cat, name=name, pid=0, tid=stream, ts=round(start, 3), dur=us,
                                args=dict(args, stream=stream, correlation=self.id)))
        return start + us

    def product(self, m, n, k):
        share = 0.34 + 0.13 * min(1, (m * n * k) ** (1 / 3) / 6000)
        self.launch(7, GEMM, 1e6 * 2 * m * n * k / (share * PEAK) * self.noise())

    def streaming(self, name, nbytes):
        self.launch(7, name, (1e6 * nbytes / STREAM + 2) * self.noise())

    def collective(self, stream, what, nbytes, dtype, after):
        """Full buffer of nbytes.  Rank 0 begins 40 us before the other and ends with it."""
        kernel = dict(all_gather="ncclDevKernel_AllGather_RING_LL", reduce_scatter="ncclDevKernel_ReduceScatter_Sum_f32_RING_LL")[what]
        size = dict(BFloat16=2, Float=4)[dtype]
        full, part = nbytes // size, nbytes // size // WORLD
        took = (1e6 * nbytes * (WORLD - 1) / WORLD / LINK + 20) * self.noise()
        start = max(self.host + 5, self.tail.get(stream, 0), after)
        late = 40 if self.rank == 0 else 0
        end = self.launch(stream, kernel + "(ncclDevKernelArgsStorage<4096ul>)", took + late, start + 40 - late,
                          **{"Collective name": "_allgather_base" if what == "all_gather" else "_reduce_scatter_base",
                             "In msg nelems": part if what == "all_gather" else full,
                             "Out msg nelems": full if what == "all_gather" else part, "Group size": WORLD, "dtype": dtype,
                             "Process Group Name": "0"})
        self.colls.append((start + 40, end))
        return end


def padded(shapes):
    """FSDP2 shards each parameter on its first dimension."""
    return sum((s[0] + WORLD - 1) // WORLD * WORLD * (s[1] if len(s) > 1 else 1) for s in shapes)


BLOCK = padded([(WIDTH, WIDTH)] * 4 + [(FFN, WIDTH)] * 2 + [(WIDTH, FFN)] + [(WIDTH,)] * 2)
ROOT = padded([(VOCAB, WIDTH)] * 2 + [(WIDTH,)])
ACT = TOKENS * WIDTH * 2                    # bytes of one activation


def gather(m, n):
    copied = m.launch(20, CAT, 1e6 * (n // WORLD * 6) / STREAM + 2)
    return m.collective(24, "all_gather", 2 * n, "BFloat16", copied)


def copy_out(m, n, gathered):
    m.launch(7, SPLIT, 1e6 * 4 * n / STREAM * m.noise(), gathered)


def reduce(m, n):
    cast = m.launch(7, CAT, 1e6 * 6 * n / STREAM * m.noise())
    return m.collective(28, "reduce_scatter", 4 * n, "Float", cast)


def forward_block(m):
    m.streaming(NORM, 9 * ACT)
    for _ in "qkv":
        m.product(TOKENS, WIDTH, WIDTH)
    m.streaming(ELEMENT, 20 * ACT)                              # rotary
    m.launch(7, FWD, 1e6 * 2 * BATCH * SEQ * SEQ * WIDTH / 300e12 * m.noise())
    m.product(TOKENS, WIDTH, WIDTH)
    m.streaming(ELEMENT, 3 * ACT)
    m.streaming(NORM, 9 * ACT)
    m.product(TOKENS, FFN, WIDTH)
    m.streaming(ELEMENT, 2 * TOKENS * FFN * 2)                  # silu
    m.product(TOKENS, FFN, WIDTH)
    m.streaming(ELEMENT, 3 * TOKENS * FFN * 2)
    m.product(TOKENS, WIDTH, FFN)
    m.streaming(ELEMENT, 3 * ACT)


def both(m, out, k):
    """dW and dX of a linear layer."""
    m.product(out, k, TOKENS)
    m.product(TOKENS, k, out)


def backward_block(m):
    start = m.host
    both(m, WIDTH, FFN)
    m.streaming(ELEMENT, 5 * TOKENS * FFN * 2)
    both(m, FFN, WIDTH)
    m.streaming(ELEMENT, 3 * TOKENS * FFN * 2)
    both(m, FFN, WIDTH)
    m.streaming(NORM, 30 * ACT)
    both(m, WIDTH, WIDTH)
    for name, part in zip(BWD, (0.1, 0.8, 0.1)):
        m.launch(7, name, part * 1e6 * 5 * BATCH * SEQ * SEQ * WIDTH / 240e12 * m.noise())
    m.streaming(ELEMENT, 20 * ACT)
    for i in range(3):
        both(m, WIDTH, WIDTH)
        if i:
            m.streaming(ELEMENT, 3 * ACT)
    m.streaming(NORM, 30 * ACT)
    m.mark("autograd::engine::evaluate_function: MmBackward0", start, "cpu_op")


def step(m, number):
    begin = m.host
    units = [BLOCK] * LAYERS
    gathered = gather(m, ROOT)
    copy_out(m, ROOT, gathered)
    m.streaming(ELEMENT, 2 * ACT)                               # embedding
    m.launch(7, ANGLES, 3)                                      # rotary's angles: a product that no plan counts
    for n in units:
        gathered = gather(m, n)
        copy_out(m, n, gathered)
        forward_block(m)
    m.streaming(NORM, 9 * ACT)
    m.product(TOKENS, VOCAB, WIDTH)
    m.streaming(NORM, 6 * TOKENS * VOCAB * 2)
    prefetched = gather(m, BLOCK)
    start = m.host
    m.streaming(NORM, 8 * TOKENS * VOCAB * 2)
    both(m, VOCAB, WIDTH)
    m.streaming(NORM, 15 * ACT)
    m.mark("autograd::engine::evaluate_function: MmBackward0", start, "cpu_op")
    reduced = 0
    for i in reversed(range(LAYERS)):
        copy_out(m, BLOCK, prefetched)
        if i:
            prefetched = gather(m, BLOCK)
        backward_block(m)
        m.tail[7] = max(m.tail[7], reduced)                     # one reduction in flight
        reduced = reduce(m, BLOCK)
    start = m.host
    m.streaming(ELEMENT, 4 * ACT)                               # embedding's gradient
    m.mark("autograd::engine::evaluate_function: EmbeddingBackward0", start, "cpu_op")
    m.tail[7] = max(m.tail[7], reduced)
    m.tail[7] = max(m.tail[7], reduce(m, ROOT))
    start = m.host
    for _ in range(8):
        m.launch(7, ADAMW, 1e6 * 80 * (LAYERS * BLOCK + ROOT) / WORLD / 8 / STREAM * m.noise())
    m.mark("Optimizer.step#AdamW.step", start)
    m.host = max(m.host, m.tail[7])                             # reads the loss
    m.mark("ProfilerStep#%d" % number, begin)


def write(folder, rank):
    m = Machine(rank)
    for i in range(STEPS):
        step(m, 10 + i)
        m.host += 10
    doc = dict(schemaVersion=1, deviceProperties=[dict(id=0, name="NVIDIA H100 80GB HBM3")],
               distributedInfo=dict(backend="nccl", rank=rank, world_size=WORLD), traceEvents=m.events)
    with gzip.GzipFile("%s/fsdp2_h100_%d.json.gz" % (folder, rank), "wb", mtime=0) as f:
        f.write(json.dumps(doc).encode())


for rank in 0, 1:
    write(sys.argv[1] if len(sys.argv) > 1 else ".", rank)
