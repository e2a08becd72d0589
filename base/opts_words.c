/* opts_words.c -- see opts_words.h. */
#include "base/opts_words.h"

#include <stdio.h>
#include <string.h>

const struct opts_word opts_words[] = {
    { "batch", "global-batch,micro-batch", NULL }, { "batch-size", "global-batch,micro-batch,batch", NULL },
    { "train-batch-size", "global-batch,batch", NULL }, { "per-device-batch-size", "micro-batch", NULL },
    { "per-device-train-batch-size", "micro-batch", NULL }, { "micro-batch-size", "micro-batch", NULL }, { "mbs", "micro-batch", NULL },
    { "gbs", "global-batch,batch", NULL }, { "global-batch", "batch", NULL }, { "global-batch-size", "global-batch,batch", NULL },
    { "bs", "global-batch,micro-batch,batch", NULL },
    { "batch", "set", "--set micro_batch=2" }, { "batch-size", "set", "--set micro_batch=2" }, { "micro-batch", "set", "--set micro_batch=2" }, { "micro-batch-size", "set", "--set micro_batch=2" },
    { "per-device-train-batch-size", "set", "--set micro_batch=2" }, { "mbs", "set", "--set micro_batch=2" },
    { "seq-len", "seq", NULL }, { "seq-length", "seq", NULL }, { "sequence-length", "seq", NULL }, { "max-length", "seq", NULL },
    { "max-seq-length", "seq", NULL }, { "context-length", "seq", NULL }, { "context", "seq", NULL }, { "block-size", "seq", NULL },
    { "max-seq-len", "seq", NULL }, { "max-sequence-length", "seq", NULL }, { "sequence-len", "seq", NULL }, { "model-max-length", "seq", NULL },
    { "cutoff-len", "seq", NULL }, { "ctx-len", "seq", NULL }, { "n-ctx", "seq", NULL },
    { "cluster", "train", "the type of GPU alone, as in: dpxplan fit MODEL h100" }, { "gpus", "train", "the type of GPU alone, as in: dpxplan fit MODEL h100" },
    { "gpu", "train", "the type of GPU alone, as in: dpxplan fit MODEL h100" },
    { "gpus", "cluster", "--cluster 8xh100" }, { "gpu", "cluster", "--cluster 8xh100" }, { "num-gpus", "cluster", "--cluster 8xh100" },
    { "nodes", "cluster", "--cluster 2x8xh100" }, { "num-nodes", "cluster", "--cluster 2x8xh100" }, { "nnodes", "cluster", "--cluster 2x8xh100" },
    { "world-size", "cluster", "--cluster 8xh100" }, { "hardware", "cluster", "--cluster 8xh100" },
    { "tp", "set", "--set parallel.tensor=2" }, { "tensor-parallel", "set", "--set parallel.tensor=2" },
    { "tensor-parallel-size", "set", "--set parallel.tensor=2" }, { "tensor-model-parallel-size", "set", "--set parallel.tensor=2" },
    { "pp", "set", "--set parallel.pipeline=2" }, { "pipeline-parallel-size", "set", "--set parallel.pipeline=2" },
    { "cp", "set", "--set parallel.context=2" }, { "ep", "set", "--set parallel.expert=2" },
    { "tp", "grid", "--grid, which tries all of them" }, { "tensor-parallel-size", "grid", "--grid, which tries all of them" },
    { "pp", "grid", "--grid, which tries all of them" }, { "pipeline-parallel-size", "grid", "--grid, which tries all of them" },
    { "cp", "grid", "--grid, which tries all of them" }, { "ep", "grid", "--grid, which tries all of them" },
    { "bf16", "precision", "--precision bf16" }, { "fp16", "precision", "--precision fp16" }, { "optim", "optimizer", NULL },
    { "cpu-offload", "offload", NULL }, { "fsdp", "strategy", "--strategy fsdp" },
    { "dtype", "precision", NULL }, { "dtype", "set", "--set precision=bf16" }, { "precision", "set", "--set precision=bf16" },
    { "model-name", "model", NULL }, { "model-name-or-path", "model", NULL },
    { "vram", "memory", "--memory 80GB" }, { "vram", "set", "--set memory=80GB" }, { "memory", "set", "--set memory=80GB" },
    { "zero", "strategy", "--strategy zero1, zero2 or zero3" }, { "zero-stage", "strategy", "--strategy zero1, zero2 or zero3" },
    { "zero", "set", "--set strategy=zero1, zero2 or zero3" }, { "zero-stage", "set", "--set strategy=zero1, zero2 or zero3" }, { "strategy", "set", "--set strategy=zero2" }, { "dialect", "set", "--set dialect=torch" },
    { "gradient-checkpointing", "recompute", "--recompute full" }, { "activation-checkpointing", "recompute", "--recompute full" },
    { "gradient-checkpointing", "set", "--set recompute=full" }, { "activation-checkpointing", "set", "--set recompute=full" },
    { "checkpointing", "recompute", "--recompute full" }, { "checkpoint-activations", "recompute", "--recompute full" },
    { "recompute-granularity", "recompute", "--recompute full" }, { "checkpointing", "set", "--set recompute=full" },
    { "checkpoint-activations", "set", "--set recompute=full" }, { "recompute-granularity", "set", "--set recompute=full" },
    { "recompute", "set", "--set recompute=full" },
    { "grad-accum", "accumulation", NULL }, { "gradient-accumulation-steps", "accumulation", NULL },
    { "grad-accum", "set", "--set accumulation=8" }, { "gradient-accumulation-steps", "set", "--set accumulation=8" },
    { "accumulation", "set", "--set accumulation=8" },
    { "grad-accum", "global-batch", "--global-batch: samples of a whole step, all accumulation steps together" },
    { "gradient-accumulation-steps", "global-batch", "--global-batch: samples of a whole step, all accumulation steps together" },
    { "grad-accum", "batch", "--batch: samples of a whole step, all accumulation steps together" },
    { "gradient-accumulation-steps", "batch", "--batch: samples of a whole step, all accumulation steps together" },
    { "accumulation", "global-batch", "--global-batch: samples of a whole step, all accumulation steps together" },
    { "gradient-accumulation", "accumulation", NULL }, { "gradient-accumulation", "set", "--set accumulation=8" },
    { "gradient-accumulation", "global-batch", "--global-batch: samples of a whole step, all accumulation steps together" },
    { "gradient-accumulation", "batch", "--batch: samples of a whole step, all accumulation steps together" },
    { "liger", "loss", "--loss fused-linear" }, { "use-liger-kernel", "loss", "--loss fused-linear" }, { "use-liger", "loss", "--loss fused-linear" },
    { "liger", "set", "--set loss=fused-linear" }, { "use-liger-kernel", "set", "--set loss=fused-linear" }, { "loss", "set", "--set loss=fused-linear" },
    { "lora-rank", "lora", NULL }, { "lora-r", "lora", NULL }, { "qlora", "train", "--train qlora" }, { "load-in-4bit", "train", "--train qlora" },
    { "qlora", "base-dtype", "--lora 16 --base-dtype nf4" }, { "load-in-4bit", "base-dtype", "--lora 16 --base-dtype nf4" },
    { "train", "lora", "--lora 16" }, { "peft", "lora", "--lora 16" }, { "peft", "train", "--train lora" },
    { "adapter", "lora", "--lora 16" }, { "adapter", "train", "--train lora" }, { "adapters", "lora", "--lora 16" }, { "adapters", "train", "--train lora" },
    { "finetuning-type", "lora", "--lora 16" }, { "finetuning-type", "train", "--train lora" },
    { "max-steps", "steps", NULL }, { "num-steps", "steps", NULL }, { "iterations", "steps", NULL }, { "learning-rate", "lr", NULL },
    { "max-grad-norm", "clip", NULL }, { "grad-clip", "clip", NULL },
    { "num-train-epochs", "epochs", NULL }, { "num-epochs", "epochs", NULL }, { "out", "output", NULL }, { "cost", "price", NULL },
    { NULL, NULL, NULL },
};

bool opts_words_key(const char *word, char key[32])
{
    static const char *const keys[] = { "seq", "accumulation", "cluster", "precision", "strategy", "optimizer", "recompute", "loss", "model", NULL };
    char typed[64];
    const char *found = NULL;
    size_t n = 0;

    snprintf(typed, sizeof typed, "%s", word);
    for (char *c = typed; *c; c++)
        *c = *c == '_' ? '-' : *c;
    for (size_t i = 0; opts_words[i].word && !found; i++)
        if (!strcmp(typed, opts_words[i].word) && !strcmp(opts_words[i].options, "set") && strcmp(opts_words[i].write, "--set memory=80GB"))
            found = opts_words[i].write + strlen("--set "), n = strcspn(found, "=");
    for (size_t i = 0; opts_words[i].word && !found; i++)
        for (int k = 0; keys[k] && !strcmp(typed, opts_words[i].word); k++)
            if (!strcmp(opts_words[i].options, keys[k]))
                found = keys[k], n = strlen(found);
    if (found)
        snprintf(key, 32, "%.*s", (int)n, found);
    return found != NULL;
}
