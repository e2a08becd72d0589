/* train_check.c -- see train_check.h. */
#include "model/plan/train_check.h"

#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "model/arch/packed.h"
#include "model/arch/training.h"
#include "model/plan/attention.h"
#include "model/plan/cut_adapter.h"
#include "model/plan/framework.h"
#include "model/plan/loss_check.h"
#include "model/plan/knob.h"

static bool same_training(const struct training *a, const struct training *b)
{
    if (a->base != b->base || a->bridge != b->bridge || a->grouped != b->grouped)
        return false;
    if (training_is_all(a) || !training_is_lora(a))
        return !strcmp(a->what, b->what);
    return training_is_lora(b) && a->rank == b->rank && a->qkv_parts == b->qkv_parts && a->dora == b->dora && !strcmp(a->target_modules, b->target_modules)
        && !strcmp(a->target_parameters, b->target_parameters)
        && !strcmp(a->modules_to_save, b->modules_to_save);
}

/* What blocks have that dpx's own kernels compute as a whole or not at all. */
static int check_own_train(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    const char *what = m->parallel ? "attention and MLP in parallel" : m->norm_place != NORM_FIRST ? "norms after attention and MLP"
                     : m->qk_norm ? "norms of q and k" : m->fused_gate_up ? "gate and up in one matrix" : NULL;

    if (what)
        return fail("%s: train: kernels \"dpx\" have no adapters and frozen weights beside %s", where, what);
    if (p->train.base == BASE_INT8 || p->train.base == BASE_AO_INT8)
        return fail("%s: base_dtype: kernels \"dpx\" have no products of 8-bit integers (%s): take torch-sdpa or torch-eager", where,
                    p->train.base == BASE_INT8 ? "LLM.int8()" : "torchao");
    if (p->train.base == BASE_AO_NF4)
        return fail("%s: base_dtype: kernels \"dpx\" unpack NF4 as bitsandbytes does: take nf4-double, or torch-sdpa", where);
    if (p->train.base != BASE_PLAIN && p->strategy != STRAT_DDP)
        return fail("%s: base_dtype: kernels \"dpx\" have whole weights in %s, which %s divides among ranks: take strategy ddp", where,
                    training_base_name(p->train.base), strategy_name(p->strategy));
    if (p->train.base != BASE_PLAIN && p->precision == DT_FP32)
        for (int t = 0; t < m->ntensors; t++)
            if (m->tensors[t].packed != BASE_PLAIN && m->tensors[t].is_bias)
                return fail("%s: base_dtype: %s has a bias, which %s keeps in 16 bits: set precision bf16", where, m->tensors[t].name,
                            training_base_name(p->train.base));
    return 0;
}

/* torchao 0.18's Int8Tensor has neither the views that DDP's broadcast of the model takes nor the splits of FSDP2's shards
 * (both errors were seen with torch 2.15 on two gloo ranks); prepare_model_for_kbit_training() leaves its models in their 16 bits. */
static int check_torchao(const struct plan *p, const char *where)
{
    const char *base = training_base_name(p->train.base);

    if (p->strategy != STRAT_DDP || p->cluster.world_size > 1)
        return fail("%s: base_dtype: %s is of one GPU: torchao refuses %s of it (\"Int8Tensor dispatch: attempting to run unimplemented "
                    "operator/function: aten.%s\"): take nf4 or int8, or one GPU", where, base,
                    p->strategy == STRAT_DDP ? "DistributedDataParallel's broadcast" : "FSDP2's shards", p->strategy == STRAT_DDP ? "view" : "split");
    if (p->precision == DT_FP32 || plan_recipe(p).frozen == DT_FP32)
        return fail("%s: base_dtype: transformers leaves models in %s in their 16 bits: set precision and ddp.model_dtype to bf16", where, base);
    return 0;
}

/* torchao's NF4 is split along its rows, its blocks' scalers and their factors with it; DDP and FSDP1 take views that it has not. */
static int check_nf4_torchao(const struct plan *p, const char *where)
{
    enum { A_FACTOR = 64 * 256 };
    int64_t ranks = p->strategy == STRAT_FSDP ? p->shard_group > 0 ? p->shard_group : p->cluster.world_size : 1;

    if (p->dialect != DIALECT_TORCH || (p->strategy == STRAT_DDP && p->cluster.world_size > 1))
        return fail("%s: base_dtype: torchao's NF4 is planned under FSDP2 and on one GPU: take nf4-double, which is bitsandbytes'", where);
    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        if (t->packed == BASE_AO_NF4 && !t->is_bias && t->numel % (A_FACTOR * ranks))
            return fail("%s: base_dtype: %s has %lld weights, which are not whole blocks of 64 x 256 on %lld ranks: torchao stops there", where, t->name,
                        (long long)t->numel, (long long)ranks);
    }
    return 0;
}

/* With torchao 0.18's int4 nothing trains that has one of its layers above it (tests/golden/tune/int4.jsonl, recorded with torch 2.15, PEFT 0.21). */
static int refuse_int4(const struct plan *p, const char *where)
{
    const char *why = p->train.base == BASE_AO_INT4_TILED ? "autograd stops at it (\"derivative for aten::_weight_int4pack_mm is not implemented\")"
                    : training_is_lora(&p->train) ? "PEFT refuses it (\"TorchaoLoraLinear only supports int8 weights for now.\")"
                    : "its product has no derivative, torch warns (\"an autograd kernel was not registered\") and tensors below get no gradients";

    return fail("%s: base_dtype: %s does not train: %s: take nf4-double, which keeps these weights in %s where int4 takes %s, or on one GPU "
                "int8-torchao", where, training_base_name(p->train.base), why, size_text(packed_weights(&p->model, BASE_NF4_DOUBLE)).s,
                size_text(packed_weights(&p->model, p->train.base)).s);
}

/* transformers' quantised models under autocast; embeddings, norms and the head are in fp32 as
 * prepare_model_for_kbit_training() leaves them, or (model_dtype) in 16 bits as they were loaded. */
static int check_base(const struct plan *p, const char *where)
{
    const char *base = training_base_name(p->train.base);

    if (p->train.base == BASE_PLAIN)
        return 0;
    if (p->train.base == BASE_AO_INT4 || p->train.base == BASE_AO_INT4_TILED)
        return refuse_int4(p, where);
    if (p->dialect == DIALECT_TORCH ? p->strategy != STRAT_DDP && p->strategy != STRAT_FSDP : p->dialect != DIALECT_TORCH_FSDP1)
        return fail("%s: base_dtype: weights in %s are planned under PyTorch's DDP, FSDP1 and FSDP2 alone", where, base);
    if (p->train.base == BASE_AO_INT8)
        return check_torchao(p, where);
    if (p->train.base == BASE_AO_NF4 && check_nf4_torchao(p, where) < 0)
        return -1;
    if (p->strategy == STRAT_FSDP && (p->train.base == BASE_INT8 || p->fsdp.model_dtype != DT_BF16))
        return fail("%s: base_dtype: FSDP shards codes of 4 bits in the units' own dtype (bnb_4bit_quant_storage): nf4 or nf4-double with "
                    "fsdp.model_dtype bf16", where);
    if (p->precision == DT_FP32 && p->kernels != KERNELS_DPX)
        return fail("%s: base_dtype: weights in %s are computed with in 16 bits: set precision bf16 or fp16", where, base);
    if (p->strategy == STRAT_DDP && p->precision != DT_FP32 && !plan_recipe(p).autocast && !p->train.dora)
        return fail("%s: base_dtype: weights in %s beside tensors that train in %s are not supported yet: leave ddp.model_dtype out",
                    where, base, dtype_name(p->precision));
    if (p->train.base_head && (p->kernels == KERNELS_DPX || (p->train.base != BASE_NF4 && p->train.base != BASE_NF4_DOUBLE) || !plan_is_data_parallel(p) ||
                               p->loss == LOSS_CHUNKED || p->loss == LOSS_LINEAR_CHUNKS))
        return fail("%s: base_head: a head in 4 bits is planned as nf4 and nf4-double, with PyTorch's kernels, data parallelism and a loss of whole logits", where);
    if (p->train.base == BASE_INT8 && p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL
        && p->recompute != RECOMPUTE_REENTRANT)
        return fail("%s: recompute: bitsandbytes' int8 layers keep their input beside autograd, hence beside checkpoints: beside "
                    "recompute none, full and reentrant it is not supported yet", where);
    if (p->train.base == BASE_INT8 && p->recompute != RECOMPUTE_NONE && p->model.norm_place != NORM_FIRST && p->model.norm_place != NORM_AROUND)
        return fail("%s: recompute: an int8 layer keeps its input beside checkpoints, and without a norm before it that is the output of "
                    "the block before: not supported yet", where);
    return 0;
}

struct adapters_at train_adapters_at(const struct plan *p)
{
    struct adapters_at at = { 0 };

    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        if (!tensor_is_adapter(t))
            continue;
        at.ends |= t->block < 0;
        at.head |= t->role == ROLE_HEAD;
        at.embedding |= t->role == ROLE_TOKENS;
        at.experts |= role_is_of_experts(t->role) || t->role == ROLE_ROUTER;
    }
    return at;
}

/* Adapters of parameters that are no layer's, and of the embedding and the head: units outside of blocks train in part. */
static int check_ends(const struct plan *p, const char *where)
{
    struct adapters_at at = train_adapters_at(p);

    if (at.experts && p->dialect != DIALECT_TORCH)
        return fail("%s: lora: adapters of experts' weights and routers (PEFT's ParamWrapper) are planned for ddp/torch and fsdp/torch", where);
    if (at.ends && p->kernels == KERNELS_DPX)
        return fail("%s: lora.target_modules: kernels \"dpx\" have no adapters of the embedding and the head", where);
    if (at.head && (p->loss == LOSS_CHUNKED || loss_reads_head(p->loss)))
        return fail("%s: loss: one that multiplies by the head's weight itself leaves out the head's adapters: fp32, bf16, fused or "
                    "liger-cross-entropy", where);
    return 0;
}

/* The way of parallel that has ranks: "tensor", "context" or "pipeline". */
static const char *other_way(const struct parallel_options *o)
{
    return o->tensor > 1 ? "tensor" : o->pipeline > 1 ? "pipeline" : "context";
}

/* Where blocks are recomputed; else the model's forward holds the first block's input, which the stages' edges do not know. */
static bool planned_in_stages(const struct plan *p)
{
    return p->dialect == DIALECT_TORCH && training_is_lora(&p->train) && !pipeline_splits(p->parallel.pipeline_schedule) && recompute_whole(p->recompute);
}

/* What leaves every layer that has weights to one rank: verl's Ulysses, under FSDP2 and FSDP1; FSDP2's stages. */
static bool keeps_layers_whole(const struct plan *p)
{
    const struct parallel_options *of = &p->parallel;
    bool torchs = p->strategy == STRAT_FSDP && dialect_is_torch(p->dialect) && p->kernels != KERNELS_DPX && p->train.base == BASE_PLAIN && of->tensor == 1;
    bool ulysses = of->context > 1 && of->pipeline == 1 && (of->context_method == CONTEXT_ULYSSES || p->dialect == DIALECT_TORCH_FSDP1);
    bool stages = of->context == 1 && of->pipeline > 1 && planned_in_stages(p);

    return torchs && (ulysses || stages) && !train_adapters_at(p).ends && !p->train.modules_to_save[0];
}

/* NeMo Automodel's adapters of layers that tensor-parallel ranks share (tape_adapter_row.h). */
static int check_cut(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    struct adapters_at at = train_adapters_at(p);

    if (!of->inputs_apart)
        return fail("%s: train: adapters and frozen weights beside parallel.tensor are planned as NeMo Automodel has them: set parallel.inputs_apart to true", where);
    if (of->sequence)
        return fail("%s: parallel.sequence: NeMo Automodel's SequenceParallelAllGatherActivation makes the norms beside adapters train, which is not planned: "
                    "false", where);
    if (of->context > 1 || (of->pipeline > 1 && !planned_in_stages(p)) || of->expert > 1 || at.ends || at.experts || p->train.modules_to_save[0] || p->train.base != BASE_PLAIN)
        return fail("%s: train: beside parallel.tensor adapters of blocks' layers are planned, without %s", where,
                    of->context > 1 ? "parallel.context" : of->pipeline > 1 && !planned_in_stages(p) ? "parallel.pipeline" : of->expert > 1 ? "parallel.expert"
                    : p->train.modules_to_save[0] ? "lora.modules_to_save" : p->train.base != BASE_PLAIN ? "base_dtype" : "those of other layers");
    if (p->train.rank % of->tensor || p->train.dropout > 0 || !p->train.narrow)
        return fail("%s: lora.%s: with parallel.tensor %s", where, p->train.rank % of->tensor ? "rank" : p->train.dropout > 0 ? "dropout" : "narrow",
                    p->train.rank % of->tensor ? "its ranks share the adapter's rank, which they have to divide" : p->train.dropout > 0 ? "0 is planned"
                    : "adapters are in the model's 16 bits: true");
    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER)
        return fail("%s: kernels: beside parallel.tensor adapters are planned with torch-sdpa and torch-eager", where);
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL)
        return fail("%s: recompute: beside parallel.tensor adapters are planned with none and full", where);
    for (int t = 0; t < p->model.ntensors; t++) {
        const struct tensor *x = &p->model.tensors[t];
        if (tensor_is_adapter(x) && (x->role == ROLE_QKV || x->role == ROLE_GATE_UP))
            return fail("%s: lora.target_modules: layers that are several in one are not planned beside parallel.tensor", where);
        if (x->adapter == ADAPTER_LORA_A && (x->role == ROLE_ATTN_OUT || x->role == ROLE_DOWN) &&
            cut_adapter_exchanges(p, x->shape[1]))
            return fail("%s: micro_batch: of so many positions DTensor exchanges %s's columns for rows in backward, which is not planned: fewer", where, x->name);
    }
    return 0;
}

/* Adapters of what is not dealt out: all of experts and routers is frozen. */
static int check_dealt(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    struct adapters_at at = train_adapters_at(p);
    const char *what = p->dialect != DIALECT_TORCH || p->strategy != STRAT_FSDP || p->kernels == KERNELS_DPX ? "" : at.experts || at.ends ? ": of attention's layers they are"
                     : p->train.modules_to_save[0] || !training_is_lora(&p->train) ? ": adapters alone are" : p->train.base != BASE_PLAIN ? ": of weights that are not packed they are"
                     : of->tensor > 1 || of->context > 1 || of->pipeline > 1 ? ": without parallel.tensor, context and pipeline they are" : NULL;

    return what ? fail("%s: train: adapters and frozen weights beside parallel.expert are not supported yet%s", where, what) : 0;
}

int train_check_ranks(const struct plan *p, const char *where)
{
    const struct framework *f = framework_of(p);
    char cells[400];

    if (training_is_all(&p->train))
        return 0;
    if (!knob_has(p, "", "train")) {
        knob_cells_short(knob_cells("", "train"), cells, sizeof cells);
        return fail("%s: train: adapters and frozen weights are not planned for %s in dialect %s yet; these have them: %s", where,
                    strategy_name(p->strategy), dialect_name(p->dialect), cells);
    }
    if (p->train.bridge && !f->megatron_layers)
        return fail("%s: train: Megatron-Bridge's adapters are of dialect megatron alone", where);
    if (f->check_train && f->check_train(p, where) < 0)
        return -1;
    if (f->megatron_layers)
        return 0;
    if (p->model.experts && p->parallel.expert > 1)
        return check_dealt(p, where);
    if (p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH && p->parallel.tensor > 1 && training_is_lora(&p->train))
        return check_cut(p, where);
    if (!plan_is_data_parallel(p) && !keeps_layers_whole(p)) {
        bool whole = p->strategy != STRAT_FSDP && p->strategy != STRAT_ZERO3 && p->parallel.context == 1;
        bool stages = !whole && p->dialect == DIALECT_TORCH && p->parallel.pipeline > 1 && !recompute_whole(p->recompute);
        return fail("%s: train: adapters and frozen weights beside parallel.%s are not planned yet: set it to 1%s", where, other_way(&p->parallel),
                    stages ? "; LoRA in stages is planned with recompute full" : whole ? "; fsdp of torch and zero3 of deepspeed cut frozen weights over all ranks" : "");
    }
    return 0;
}

/* A graph of torch.compile() has PEFT's products among its own; bitsandbytes' kernels break it. */
static int check_compiled(const struct plan *p, const char *where)
{
    const char *set = kernels_name(p->kernels);

    if (p->kernels != KERNELS_TORCH_COMPILE)
        return 0;
    if (!training_is_lora(&p->train))
        return fail("%s: train: kernels \"%s\" train everything or adapters so far: take torch-sdpa, torch-eager or dpx", where, set);
    if (p->train.base != BASE_PLAIN)
        return fail("%s: base_dtype: kernels \"%s\" are modelled around weights that are not packed: take torch-sdpa", where, set);
    if (p->recompute == RECOMPUTE_OP)
        return fail("%s: recompute: \"op\" beside adapters is not modelled with kernels \"%s\": none or full", where, set);
    if (p->compile_mode != COMPILE_DEFAULT)
        return fail("%s: compile_mode: CUDA graphs of kernels \"%s\" are not modelled beside adapters: \"default\"", where, set);
    if (p->train.dropout > 0)
        return fail("%s: lora.dropout: kernels \"%s\" make their masks by another generator, which is not modelled", where, set);
    return 0;
}

/* torchtune's DoRALinear. */
static int check_dora(const struct plan *p, const char *where)
{
    struct adapters_at at = train_adapters_at(p);

    if (!p->train.narrow)
        return fail("%s: lora.use_dora: torchtune's, with lora.narrow and a model in bf16: PEFT's DoRA beside adapters in fp32 is not planned", where);
    if ((p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER) || (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL))
        return fail("%s: lora.use_dora: planned with kernels torch-sdpa and torch-eager, and recompute none and full", where);
    if (p->train.base != BASE_PLAIN && !packed_nf4(p->train.base))
        return fail("%s: lora.use_dora: planned beside weights in their own dtype and in NF4", where);
    if (p->qat.kind != QAT_NONE)
        return fail("%s: lora.use_dora: torchtune's layers that round have no magnitudes: leave qat out", where);
    if (!plan_is_data_parallel(p))
        return fail("%s: lora.use_dora: planned with data parallelism alone, as torchtune trains it: each size of parallel 1", where);
    if (at.ends || at.experts || p->train.qkv_parts)
        return fail("%s: lora.use_dora: planned of linear layers of blocks, as wholes", where);
    return 0;
}

int train_check(const struct plan *p, const char *where)
{
    if (!same_training(&p->train, &p->model.training))
        return fail("%s: train: the model was made for something else to train", where);
    if (training_is_all(&p->train))
        return 0;
    if (check_compiled(p, where) < 0)
        return -1;
    if (check_ends(p, where) < 0)
        return -1;
    if (p->train.qkv_parts && ((p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER) ||
                               (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL)))
        return fail("%s: lora.qkv_parts: planned with kernels torch-sdpa and torch-eager, and recompute none and full", where);
    if (p->train.dora && check_dora(p, where) < 0)
        return -1;
    /* Of a block that is recomputed the input leaves, whatever trains: also the first one's, which needs no gradient (tests/golden/offload). */
    if (p->activation_offload != OFFLOAD_NOTHING || (p->recompute == RECOMPUTE_OFFLOAD && p->kernels == KERNELS_DPX))
        return fail("%s: train: adapters and frozen weights beside offloaded activations are not supported yet", where);
    if (p->recompute_interval != 1)
        return fail("%s: recompute_interval: beside adapters and frozen weights only 1 is supported yet", where);
    if (attention_mixed(p) && !model_windowed(&p->model, 0))
        return fail("%s: train: a first block without a window before others that have one is not supported yet", where);
    if (p->train.dropout >= 1)
        return fail("%s: lora.dropout: must be below 1", where);
    if (p->train.dropout_position == DROPOUT_POST && (p->train.dora || p->train.qkv_parts))
        return fail("%s: lora.dropout_position: post is planned without DoRA and without parts of a layer (lora.qkv_parts)", where);
    if (check_base(p, where) < 0)
        return -1;
    return p->kernels == KERNELS_DPX ? check_own_train(p, where) : 0;
}
