/* form_summary.c -- see form.h: what was understood of a file, in five lines. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "model/arch/sample.h"
#include "model/arch/training.h"
#include "model/arch/training_bridge.h"
#include "model/form/form.h"
#include "model/plan/knob.h"

struct lines { char *out; size_t size, n; };

__attribute__((format(printf, 2, 3))) static void add(struct lines *l, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (l->n < l->size) {
        int wrote = vsnprintf(l->out + l->n, l->size - l->n, fmt, ap);
        l->n += wrote > 0 ? (size_t)wrote : 0;
    }
    va_end(ap);
}

static const char *sharing(const struct plan *p)
{
    static const char *const fsdp1[] = { "FSDP1 (FULL_SHARD)", "FSDP1 (SHARD_GRAD_OP)", "FSDP1 (NO_SHARD)", "FSDP1 (HYBRID_SHARD)",
                                         "FSDP1 (HYBRID_SHARD_ZERO2)" };
    static const char *const stages[] = { [STRAT_DDP] = "DeepSpeed ZeRO-0", [STRAT_ZERO1] = "DeepSpeed ZeRO-1", [STRAT_ZERO2] = "DeepSpeed ZeRO-2",
                                          [STRAT_ZERO3] = "DeepSpeed ZeRO-3" };

    if (p->dialect == DIALECT_DEEPSPEED)
        return stages[p->strategy];
    if (p->dialect == DIALECT_MEGATRON)
        return p->strategy != STRAT_ZERO1 ? "Megatron-LM's DDP" : p->shard_group < plan_data_ranks(p) ? "several of Megatron-LM's distributed optimizers"
             : "Megatron-LM's distributed optimizer";
    if (p->strategy == STRAT_FSDP)
        return p->dialect == DIALECT_TORCH_FSDP1 ? fsdp1[p->fsdp.sharding_strategy] : p->shard_group < plan_data_ranks(p) ? "FSDP2, hybrid" : "FSDP2";
    return p->cluster.world_size == 1 ? "one GPU" : "DDP";
}

/* Modules, parameters of experts, or both. */
static void add_adapted(struct lines *l, const struct training *t)
{
    bool modules = t->target_modules[0], parameters = t->target_parameters[0];

    add(l, "LoRA of rank %" PRId64 " on %.80s%s%.80s", t->rank, modules ? t->target_modules : parameters ? ""
        : t->bridge ? BRIDGE_TARGETS : "PEFT's usual modules",
        modules && parameters ? "," : "", t->target_parameters);
    if (t->dora)
        add(l, " (DoRA)");
    if (t->qkv_parts)
        add(l, " (of q, k and v%s%s%s)", t->qkv_parts & PART_Q ? " q" : "", t->qkv_parts & PART_K ? " k" : "", t->qkv_parts & PART_V ? " v" : "");
}

static void add_trained(struct lines *l, const struct plan *p)
{
    add(l, "trains    ");
    if (training_is_all(&p->train))
        add(l, "everything");
    else if (training_is_lora(&p->train))
        add_adapted(l, &p->train);
    else
        add(l, "%.80s", p->train.what);
    if (p->model.trainable < p->model.params)
        add(l, ": %s of %s parameters", count_text(p->model.trainable).s, count_text(p->model.params).s);
    if (p->train.base != BASE_PLAIN)
        add(l, ", the others in %s", training_base_name(p->train.base));
    add(l, "\n");
}

static void add_parallel(struct lines *l, const struct plan *p)
{
    const struct parallel_options *o = &p->parallel;
    const struct { const char *name; int64_t n; } of[] = { { "tensor", o->tensor }, { "context", o->context }, { "pipeline", o->pipeline },
                                                           { "expert", o->expert } };

    add(l, "sharing   %s on %" PRId64 " x %s", sharing(p), p->cluster.world_size, p->cluster.gpu.name);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].n > 1)
            add(l, ", %s parallel %" PRId64, of[i].name, of[i].n);
    if (p->fsdp.cpu_offload)
        add(l, ", parameters and optimizer on the host");
    if (p->ds.offload_param.device != OFFLOAD_NONE)
        add(l, ", parameters on the %s", p->ds.offload_param.device == OFFLOAD_CPU ? "host" : "disk");
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE)
        add(l, ", optimizer on the %s", p->ds.offload_optimizer.device == OFFLOAD_CPU ? "host" : "disk");
    add(l, "\n");
}

static void add_recompute(struct lines *l, const struct plan *p)
{
    static const char *const what[NRECOMPUTE] = { [RECOMPUTE_SELECTIVE] = "attention of ", [RECOMPUTE_MODULES] = "each module of ", [RECOMPUTE_FULL] = "", [RECOMPUTE_OP] = "most operators of ",
                                                  [RECOMPUTE_OFFLOAD] = "", [RECOMPUTE_REENTRANT] = "" };
    int64_t k = p->recompute_interval;

    if (p->recompute == RECOMPUTE_OFFLOAD)
        add(l, "inputs of blocks on the host, ");
    if (p->recompute == RECOMPUTE_NONE)
        add(l, "nothing recomputed");
    else if (k == 1)
        add(l, "%severy block recomputed", what[p->recompute]);
    else
        add(l, "%severy %" PRId64 "%s block recomputed", what[p->recompute], k, k == 2 ? "nd" : k == 3 ? "rd" : "th");
}

/* Linear layers in 8 or 4 bits. */
static void add_bits(struct lines *l, const struct plan *p)
{
    const struct knob *eight = knob_find("megatron", "fp8_format", knob_cell(p)), *four = knob_find("megatron", "fp4_format", knob_cell(p));

    if (p->float8.recipe != FLOAT8_NONE)
        add(l, " with fp8 (%s)", knob_words("fp8")[p->float8.recipe]);
    if (p->qat.kind != QAT_NONE)
        add(l, " rounded as if to %s (groups of %" PRId64 ")", knob_words("qat")[p->qat.kind], p->qat.group);
    if (eight && p->megatron.fp8_format != FP8_OFF)
        add(l, " with fp8 (%s)", eight->words[p->megatron.fp8_format]);
    if (four && p->megatron.fp4_format != FP4_OFF)
        add(l, " with fp4 (%s)", four->words[p->megatron.fp4_format]);
}

static void add_memory(struct lines *l, const struct plan *p)
{
    add(l, "memory    %s", dtype_name(p->precision));
    add_bits(l, p);
    add(l, ", ");
    add_recompute(l, p);
    add(l, ", %s", knob_words("optimizer")[p->optimizer]);
    if (knob_find("", "optimizer_form", knob_cell(p)))
        add(l, " (%s)", knob_words("optimizer_form")[p->optimizer_form]);
    add(l, ", loss %s, kernels %s%s", knob_words("loss")[p->loss], kernels_name(p->kernels),
        p->liger.rope || p->liger.rms_norm || p->liger.glu_activation ? ", Liger-Kernel's" : "");
    if (p->attention != ATTENTION_BY_SDPA)
        add(l, ", attention %s", knob_words("attention")[p->attention]);
    add(l, "\n");
}

void form_summary(const struct form *form, const struct form_file *f, const struct plan *p, char *out, size_t size)
{
    struct lines l = { out, size, 0 };
    const char *named = form ? form->model(f) : NULL;

    out[0] = '\0';
    add(&l, "model     %.60s, %s parameters", p->model.name, count_text(p->model.params).s);
    if (named && strcmp(named, p->model.name) != 0)
        add(&l, " (the file names %.60s)", named);
    add(&l, "\n");
    add_trained(&l, p);
    add(&l, "batch     %" PRId64 " x accumulation %" PRId64 " x %" PRId64 " data-parallel ranks = %" PRId64 " samples of %s\n",
        p->micro_batch, p->accumulation, plan_batch_ranks(p), plan_global_batch(p), sample_text(&p->model, p->seq).s);
    add_parallel(&l, p);
    add_memory(&l, p);
}
