#!/usr/bin/env python3
"""Prints the buckets that DistributedDataParallel rebuilds of a model whose layers torch.compile() compiles one by one.

    python compiled_order.py        torch 2.15.0, transformers 5.23.0, a CPU, one process of gloo

A line a bucket_cap_mb: it, then "rebuilt_bucket_sizes".  tests/model/test_torch_compile.c has them.
"""
import os

import torch
import transformers


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")
    for cap in 2, 25:
        torch._dynamo.reset()
        config = transformers.LlamaConfig(hidden_size=512, intermediate_size=1536, num_hidden_layers=2, num_attention_heads=8,
                                          num_key_value_heads=2, vocab_size=2048, max_position_embeddings=128, tie_word_embeddings=False)
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
        for i, layer in enumerate(model.model.layers):
            model.model.layers[i] = torch.compile(layer, backend="aot_eager", fullgraph=True)
        wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=cap)
        ids = torch.zeros(1, 32, dtype=torch.int64)
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                loss = wrapped(input_ids=ids, labels=ids).loss
            loss.backward()
            wrapped.zero_grad()
        print(cap, wrapped._get_ddp_logging_data()["rebuilt_bucket_sizes"])


if __name__ == "__main__":
    main()
