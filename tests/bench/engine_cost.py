#!/usr/bin/env python3
"""What vLLM's Python takes of a step for each sequence that runs: sim/phases/generate.c takes its HOST_ rates from here.

    PYTHONPATH=... tests/bench/engine_cost.py       needs vllm 0.11.2's Python files and what they import; no GPU, two minutes

In the unit of issue_cost.py, a kernel of a tiny Llama's forward without gradients.  vLLM's own objects do the work of a step of decode, with
what a GPU would have returned made up: prompts of 150 tokens, log-probabilities of the sampled token, no detokenizer (as NeMo-RL 0.5 asks).

    core        Scheduler.schedule(), update_from_output(); GPUModelRunner._update_states() and the loop of _bookkeeping_sync()
    outputs     OutputProcessor.process_outputs(), of LLM(): the final output alone
    frontend    the same of AsyncLLM: an output a token, each taken by a coroutine of generate(); messages decoded
    message     EngineCoreOutputs encoded, where the engine's core is a process of its own
"""
import asyncio, os, sys, time
from types import SimpleNamespace as Of
from unittest.mock import MagicMock

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
for absent in ("llguidance", "llguidance.hf", "llguidance.torch", "xgrammar", "outlines_core", "xformers", "flashinfer", "numba", "ray"):
    sys.modules[absent] = MagicMock()           # of structured outputs and kernels: nothing here calls them
import numpy as np
import torch
from issue_unit import kernel_without_gradients, model
import vllm.v1.core.sched.scheduler as sched
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequest
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

BLOCK, PROMPT, STEPS = 16, 150, 160
torch.set_num_threads(1)
init_none_hash(sha256)
clock = time.thread_time


def scheduler(b):
    sched.compute_encoder_budget = lambda **_: (0, 0)
    options = Of(max_num_seqs=b, max_num_batched_tokens=1 << 17, policy="fcfs", long_prefill_token_threshold=0, enable_chunked_prefill=True,
                 async_scheduling=False, disable_chunked_mm_input=False)
    config = Of(scheduler_config=options, cache_config=Of(num_gpu_blocks=300 * b, enable_prefix_caching=True), lora_config=None, kv_events_config=None,
                parallel_config=Of(data_parallel_rank=0, pipeline_parallel_size=1, decode_context_parallel_size=1),
                model_config=Of(is_encoder_decoder=False, max_model_len=4096), kv_transfer_config=None, ec_transfer_config=None,
                speculative_config=None)
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=4, head_size=128, dtype=torch.bfloat16)
    structured = MagicMock()
    structured.should_advance.return_value = False
    return sched.Scheduler(config, KVCacheConfig(num_blocks=300 * b, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]), structured,
                           block_size=BLOCK, log_stats=False)


def requests(b, kind):
    hasher = get_request_block_hasher(BLOCK, sha256)
    for i in range(b):
        params = SamplingParams(temperature=1.0, max_tokens=3900, logprobs=0, output_kind=kind, stop_token_ids=[2])
        e = EngineCoreRequest(request_id="r%d" % i, prompt_token_ids=[3 + (7 * i + j) % 900 for j in range(PROMPT)], mm_features=None, sampling_params=params,
                              pooling_params=None, eos_token_id=2, arrival_time=0.0, lora_request=None, cache_salt=None, data_parallel_rank=None)
        yield e, Request.from_engine_core_request(e, hasher)


def sampled(ids):
    tokens = np.random.randint(5, 1000, (len(ids), 1))
    probabilities = LogprobsLists(tokens.copy(), np.random.rand(len(ids), 1).astype(np.float32), np.ones(len(ids), dtype=np.int64), None)
    return ModelRunnerOutput(req_ids=ids, req_id_to_index={x: i for i, x in enumerate(ids)}, sampled_token_ids=list(tokens), logprobs=probabilities,
                             prompt_logprobs_dict={}, pooler_output=[])


def least(took):
    """A step's mean over 16 of them, in which each sequence fills a block and has it hashed: the least of such stretches but the first."""
    return min(sum(took[i:i + BLOCK]) / BLOCK for i in range(BLOCK, STEPS, BLOCK))


class Runner:
    """The two loops over sequences of a GPUModelRunner that has no pipeline and no drafts, on an InputBatch of its shape."""

    def __init__(self, b):
        self.of, self.tokens, self.are = {}, np.zeros((b, 4096), np.int32), np.zeros((b, 4096), bool)
        self.computed, self.no_spec, self.all = (np.zeros(b, np.int64) for _ in range(3))
        self.blocks, self.count, self.index, self.drafts = np.zeros((b, 300), np.int32), np.zeros(b, np.int32), {}, [[]] * b

    def states(self, out):
        for new in out.scheduled_new_reqs:
            self.index[new.req_id] = len(self.index)
            self.of[new.req_id] = Of(tokens=[], computed=0, blocks=new.block_ids, drafted=0)
        cached = out.scheduled_cached_reqs
        for i, r in enumerate(cached.req_ids):
            state, at, blocks = self.of[r], self.index.get(r), cached.new_block_ids[i]
            resumed = r in cached.resumed_req_ids
            state.computed = cached.num_computed_tokens[i]
            if cached.num_output_tokens[i] < len(state.tokens):
                del state.tokens[cached.num_output_tokens[i]:]
            if not resumed and blocks is not None:
                for have, more in zip(state.blocks, blocks):
                    have.extend(more)
            self.computed[at] = state.computed
            if blocks is not None:
                self.blocks[at, self.count[at]:self.count[at] + len(blocks[0])] = blocks[0]
                self.count[at] += len(blocks[0])
            self.drafts[at] = out.scheduled_spec_decode_tokens.get(r, [])

    def book(self, got):
        for i, ids in enumerate(got.sampled_token_ids):
            start = self.no_spec[i]
            self.tokens[i, start:start + 1] = ids
            self.are[i, start:start + 1] = True
            self.no_spec[i] = self.all[i] = start + ids.shape[0]
            self.of[got.req_ids[i]].tokens.extend(ids)


def of_llm(b):
    """Seconds of a step: core, outputs, message."""
    s, outputs, runner, took = scheduler(b), OutputProcessor(None, log_stats=False), Runner(b), []
    encoder = MsgpackEncoder()
    for e, r in requests(b, RequestOutputKind.FINAL_ONLY):
        s.add_request(r)
        outputs.add_request(e, None, None, 0, None)
    for _ in range(STEPS):
        t0 = clock()
        out = s.schedule()
        runner.states(out)
        t1 = clock()
        got = sampled(list(out.num_scheduled_tokens))
        t2 = clock()
        runner.book(got)
        done = s.update_from_output(out, got)[0]
        t3 = clock()
        outputs.process_outputs(done.outputs, None, None)
        t4 = clock()
        encoder.encode(done)
        took.append((t1 - t0 + t3 - t2, t4 - t3, clock() - t4))
    return [least(x) for x in zip(*took)]


def of_async(b):
    """Seconds of a step in the process that has AsyncLLM."""
    s, outputs, took = scheduler(b), OutputProcessor(None, log_stats=False), []
    encoder, decoder, queues = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs), []
    for e, r in requests(b, RequestOutputKind.CUMULATIVE):
        s.add_request(r)
        queues.append(RequestOutputCollector(RequestOutputKind.CUMULATIVE))
        outputs.add_request(e, None, None, 0, queues[-1])

    async def generate(q):
        while True:
            yield q.get_nowait() or await q.get()

    async def take(q):
        async for last in generate(q):
            take.last = last

    async def all_steps():
        tasks = [asyncio.create_task(take(q)) for q in queues]
        await asyncio.sleep(0)
        for _ in range(STEPS):
            out = s.schedule()
            frames = encoder.encode(s.update_from_output(out, sampled(list(out.num_scheduled_tokens)))[0])
            t = clock()
            outputs.process_outputs(decoder.decode(frames).outputs, None, None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            took.append(clock() - t)
        for t in tasks:
            t.cancel()
    asyncio.run(all_steps())
    return least(took)


if __name__ == "__main__":
    unit, kernels = kernel_without_gradients(model())
    print("a kernel of %4d, forward without gradients    %7.2f us" % (kernels, 1e6 * unit))
    print("units a sequence   core  outputs  message  frontend")
    for b in (16, 64, 128, 256):
        core, out, message = of_llm(b)
        print("%4d sequences   %7.2f %8.2f %8.2f %9.2f" % (b, *(x / b / unit for x in (core, out, message, of_async(b)))))
