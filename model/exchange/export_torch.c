/* export_torch.c -- Python that wraps a transformers model as the plan says,
 * with PyTorch's own fully_shard, FullyShardedDataParallel,
 * DistributedDataParallel or ZeroRedundancyOptimizer.
 *
 * Module names come from the tensor table, so they are those of transformers. */
#include "model/arch/recorded.h"
#include "model/exchange/export.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/sample.h"
#include "model/arch/training.h"
#include "model/plan/knob.h"

static int refuse(const char *key, const char *why)
{
    return fail("export to fsdp: %s: %s", key, why);
}

static const char *py(bool b) { return b ? "True" : "False"; }

static const char *torch_dtype(enum dtype t)
{
    return t == DT_BF16 ? "torch.bfloat16" : t == DT_FP16 ? "torch.float16" : "torch.float32";
}

/* Of a recorded module whose units are no list of equal ones: their paths. */
static bool names_units(const struct plan *p) { return p->model.recorded && model_is_uneven(&p->model); }

static void print_units(const struct plan *p, FILE *to)
{
    const struct recorded *r = p->model.recorded;

    fprintf(to, "units = [");
    for (int u = 0; u < r->nunits; u++)
        fprintf(to, "%s\"%s\"", u == 0 ? "" : u % 4 ? ", " : ",\n         ", r->unit[u]);
    fprintf(to, "]\n");
}

/* "model.layers" of "model.layers.0.self_attn.q_proj". */
static int blocks_path(const struct model *m, char *out, size_t size)
{
    const char *name = m->modules[m->tensors[m->block0].module].name;
    const char *zero = model_is_uneven(m) && !m->hybrid ? NULL : strstr(name, ".0.");

    if (!zero || (size_t)(zero - name) >= size)
        return refuse("model", "its blocks are not a list of modules");
    memcpy(out, name, (size_t)(zero - name));
    out[zero - name] = '\0';
    return 0;
}

/* Prints the children of a block that own tensors of one half:
 * "block.input_layernorm, block.self_attn". */
static void print_half(const struct model *m, bool mlp, size_t prefix, FILE *to)
{
    char last[64] = "";

    for (int i = m->block0; i < m->block0 + m->per_block; i++) {
        const char *child = m->modules[m->tensors[i].module].name + prefix;
        int n = (int)strcspn(child, ".");
        if (m->tensors[i].mlp_half != mlp
            || (strlen(last) == (size_t)n && !strncmp(last, child, (size_t)n)))
            continue;
        fprintf(to, "%sblock.%.*s", last[0] ? ", " : "", n, child);
        snprintf(last, sizeof last, "%.*s", n, child);
    }
}

/* FSDP1's hybrid strategies want two dimensions even for one replica. */
static void print_mesh(const struct plan *p, FILE *to)
{
    int64_t world = p->cluster.world_size;
    bool hybrid = p->dialect == DIALECT_TORCH_FSDP1
               && p->fsdp.sharding_strategy >= FSDP1_HYBRID_SHARD;

    if (p->shard_group == world && !hybrid)
        fprintf(to, "mesh = init_device_mesh(\"cuda\", (%" PRId64 ",))\n", world);
    else
        fprintf(to, "mesh = init_device_mesh(\"cuda\", (%" PRId64 ", %" PRId64
                "), mesh_dim_names=(\"replicate\", \"shard\"))\n", world / p->shard_group,
                p->shard_group);
}

static void print_reshard(int64_t k, FILE *to)
{
    if (k < 0)
        fprintf(to, "None");
    else if (k < 2)
        fprintf(to, "%s", py(k == 1));
    else
        fprintf(to, "%" PRId64, k);
}

/* Foreach is PyTorch's default on GPUs. */
static const char *form_of(const struct plan *p)
{
    static const char *const forms[NOPTIMIZER_FORM] = { "", ", fused=True", ", foreach=False" };

    return forms[p->optimizer_form];
}

/* transformers recomputes whole blocks; set before wrapping. */
static void print_recompute(const struct plan *p, FILE *to)
{
    bool reentrant = p->recompute == RECOMPUTE_REENTRANT;

    if (p->model.recorded && (names_units(p) || p->recompute == RECOMPUTE_FULL))
        print_units(p, to);
    if (p->recompute == RECOMPUTE_FULL && p->model.recorded) {     /* as the recorder does it */
        fprintf(to, "if hasattr(model, \"gradient_checkpointing_enable\"):\n"
                "    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})\n"
                "else:\n    from functools import partial\n    from torch.utils.checkpoint import checkpoint\n"
                "    for block in map(model.get_submodule, units):\n"
                "        block.forward = partial(checkpoint, block.forward, use_reentrant=False)\n");
        return;
    }
    if (reentrant || p->recompute == RECOMPUTE_FULL)
        fprintf(to, "model.gradient_checkpointing_enable("
                "gradient_checkpointing_kwargs={\"use_reentrant\": %s})\n", reentrant ? "True" : "False");
}

/* Units of embedding and head: of a tied one, one unit, whose first module is the one that runs first.  Whether the head has one. */
static bool print_ends(const struct plan *p, FILE *to)
{
    const char *norm = NULL;

    for (int t = 0; t < p->model.ntensors && p->fsdp.root_units == ROOT_APART; t++)
        if (p->model.tensors[t].role == ROLE_NORM_FINAL && !norm)
            norm = p->model.tensors[t].name;
    if (!p->model.tied)
        fprintf(to, "fully_shard(model.get_input_embeddings(), **options)\n");
    if (p->fsdp.root_units == ROOT_EMBED)
        return false;
    fprintf(to, "fully_shard([");
    if (norm)
        fprintf(to, "model.%.*s, ", (int)(strrchr(norm, '.') - norm), norm);
    fprintf(to, "%smodel.get_output_embeddings()], **options | {\"reshard_after_forward\": ", p->model.tied ? "model.get_input_embeddings(), " : "");
    print_reshard(p->fsdp.root_reshard_after_forward < 0 ? 0 : p->fsdp.root_reshard_after_forward, to);
    fprintf(to, "})\n");
    return true;
}

/* The root has a value of its own: left at None it keeps its parameters, which a
 * block does not (_fsdp_state.py, _lazy_init). */
static void print_fsdp2_units(const struct plan *p, const char *blocks, FILE *to)
{
    if (p->unit == UNIT_BLOCK && names_units(p)) {
        fprintf(to, "for block in map(model.get_submodule, units):\n    fully_shard(block, **options)\n");
    } else if (p->unit == UNIT_BLOCK) {
        fprintf(to, "for block in model.%s:\n    fully_shard(block, **options)\n", blocks);
    } else if (p->unit == UNIT_BLOCKS) {
        fprintf(to, "blocks = list(model.%s)\n"
                "for first in range(0, len(blocks), %" PRId64 "):\n"
                "    fully_shard(blocks[first:first + %" PRId64 "], **options)\n",
                blocks, p->unit_blocks, p->unit_blocks);
    } else if (p->unit == UNIT_HALF_BLOCK) {
        size_t prefix = strlen(blocks) + strlen(".0.");
        fprintf(to, "for block in model.%s:\n    fully_shard([", blocks);
        print_half(&p->model, false, prefix, to);
        fprintf(to, "], **options)\n    fully_shard([");
        print_half(&p->model, true, prefix, to);
        fprintf(to, "], **options)\n");
    }
    if (p->fsdp.keeps_last_unit)
        fprintf(to, "%s.set_reshard_after_forward(False, recurse=False)        # the last one, with which backward begins\n",
                p->unit == UNIT_BLOCKS ? "blocks[first]" : "block");
    bool apart = p->fsdp.root_units != ROOT_TOGETHER && print_ends(p, to);
    fprintf(to, "fully_shard(model, **options | {\"reshard_after_forward\": ");
    print_reshard(apart ? -1 : p->fsdp.root_reshard_after_forward, to);
    fprintf(to, "})\n");
}

/* Adapters stay in fp32 beside a model in 16 bits, which to() would take with it. */
static void print_model_dtype(const struct plan *p, int t, FILE *to)
{
    if (plan_has_wide_adapters(p))
        fprintf(to, "for p in model.parameters():\n    if p.is_floating_point():\n"
                "        p.data = p.data.to(torch.float32 if p.requires_grad else %s)\n", torch_dtype(plan_recipe(p).frozen));
    else
        fprintf(to, "model = model.to(%s)%s\n", torch_dtype(t < 0 ? DT_FP32 : (enum dtype)t),
                t < 0 && p->precision != DT_FP32 ? "        # from_pretrained() loads the checkpoint's dtype, mostly 16 bits: the plan trains weights in fp32" : "");
    static const char *const attentions[] = { "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4" };
    if (!p->model.recorded)
        fprintf(to, "model.set_attn_implementation(\"%s\")\n", kernels_take_sdpa(p->kernels) ? attentions[p->attention] : "eager");
}

static void export_fsdp2(const struct plan *p, const char *blocks, FILE *to)
{
    fprintf(to, "from torch.distributed.device_mesh import init_device_mesh\n"
            "from torch.distributed.fsdp import %sMixedPrecisionPolicy, fully_shard\n\n",
            p->fsdp.cpu_offload ? "CPUOffloadPolicy, " : "");
    print_recompute(p, to);
    print_model_dtype(p, p->fsdp.model_dtype, to);
    print_mesh(p, to);
    fprintf(to, "options = dict(\n    mesh=mesh,\n    reshard_after_forward=");
    print_reshard(p->fsdp.reshard_after_forward, to);
    fprintf(to, ",\n    mp_policy=MixedPrecisionPolicy(param_dtype=%s, reduce_dtype=%s),\n",
            torch_dtype(p->precision), torch_dtype(p->reduce_dtype));
    if (p->fsdp.cpu_offload)
        fprintf(to, "    offload_policy=CPUOffloadPolicy(pin_memory=%s),\n", py(p->fsdp.pin_memory));
    fprintf(to, ")\n");
    print_fsdp2_units(p, blocks, to);
    if (!p->sync_every_micro_step && p->accumulation > 1)
        fprintf(to, "# before each micro-step: model.set_requires_gradient_sync(last_micro_step)\n");
}

/* The word of an option: PyTorch's own. */
static const char *word_of(const struct plan *p, const char *object, const char *name)
{
    const struct knob *k = knob_find(object, name, knob_cell(p));

    return k->words[(int)knob_get(p, k)];
}

static void export_fsdp1(const struct plan *p, const char *blocks, FILE *to)
{
    fprintf(to, "%sfrom torch.distributed.device_mesh import init_device_mesh\n"
            "from torch.distributed.fsdp import BackwardPrefetch, %sFullyShardedDataParallel, "
            "MixedPrecision, ShardingStrategy\n"
            "%s\n\n", p->fsdp.wrap_adapters ? "" : "from functools import partial\n", p->fsdp.cpu_offload ? "CPUOffload, " : "",
            p->fsdp.wrap_adapters ? "from peft.utils.other import fsdp_auto_wrap_policy"
                                  : "from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy");
    print_recompute(p, to);
    print_model_dtype(p, p->fsdp.model_dtype, to);
    print_mesh(p, to);
    fprintf(to, "model = FullyShardedDataParallel(\n    model,\n    device_mesh=mesh,\n");
    fprintf(to, "    sharding_strategy=ShardingStrategy.%s,\n", word_of(p, "fsdp", "sharding_strategy"));
    if (p->fsdp.wrap_adapters)
        fprintf(to, "    auto_wrap_policy=fsdp_auto_wrap_policy(model),\n");
    else if (p->unit == UNIT_BLOCK && names_units(p))
        fprintf(to, "    auto_wrap_policy=lambda module, recurse, **_: recurse or any(module is model.get_submodule(unit) for unit in units),\n");
    else if (p->unit == UNIT_BLOCK)
        fprintf(to, "    auto_wrap_policy=partial(transformer_auto_wrap_policy, "
                "transformer_layer_cls={type(model.%s[0])}),\n", blocks);
    fprintf(to, "    mixed_precision=MixedPrecision(param_dtype=%s, reduce_dtype=%s),\n",
            torch_dtype(p->precision), torch_dtype(p->reduce_dtype));
    if (p->fsdp.cpu_offload)
        fprintf(to, "    cpu_offload=CPUOffload(offload_params=True),\n");
    fprintf(to, "    backward_prefetch=%s%s,\n    forward_prefetch=%s,\n    limit_all_gathers=%s,\n"
            "    use_orig_params=%s,\n    device_id=torch.cuda.current_device(),\n)\n",
            p->fsdp.backward_prefetch == PREFETCH_NONE ? "" : "BackwardPrefetch.",
            p->fsdp.backward_prefetch == PREFETCH_NONE ? "None" : word_of(p, "fsdp", "backward_prefetch"), py(p->fsdp.forward_prefetch),
            py(p->fsdp.limit_all_gathers), py(p->fsdp.use_orig_params));
    if (!p->sync_every_micro_step && p->accumulation > 1)
        fprintf(to, "# all micro-steps but the last: with model.no_sync(): ...\n");
}

static void print_hook(const struct plan *p, FILE *to)
{
    const struct powersgd_options *o = &p->ddp.powersgd;
    const char *name = word_of(p, "ddp", "comm_hook");

    if (p->ddp.comm_hook == HOOK_NONE)
        return;
    if (p->ddp.comm_hook != HOOK_POWERSGD) {
        fprintf(to, "model.register_comm_hook(None, %s.%s)\n", comm_hook(p->ddp.comm_hook)->module, name);
        return;
    }
    fprintf(to, "state = powerSGD_hook.PowerSGDState(\n    None,\n    matrix_approximation_rank=%" PRId64 ",\n    start_powerSGD_iter=%" PRId64
            ",\n    min_compression_rate=%.17g,\n    use_error_feedback=%s,\n    warm_start=%s,\n)\n"
            "model.register_comm_hook(state, powerSGD_hook.%s)\n",
            o->rank, o->start, o->least_rate, py(o->error_feedback), py(o->warm_start), name);
}

static void print_ddp(const struct plan *p, FILE *to)
{
    fprintf(to, "model = DistributedDataParallel(\n    model,\n"
            "    device_ids=[torch.cuda.current_device()],\n");
    if (p->ddp.bucket_cap_mb >= 0)
        fprintf(to, "    bucket_cap_mb=%.17g,\n", p->ddp.bucket_cap_mb);
    fprintf(to, "    gradient_as_bucket_view=%s,\n    static_graph=%s,\n"
            "    find_unused_parameters=%s,\n",
            py(p->ddp.gradient_as_bucket_view), py(p->ddp.static_graph),
            py(p->ddp.find_unused_parameters));
    if (p->ddp.forward_sync_buffers >= 0)
        fprintf(to, "    forward_sync_buffers=%s,\n", py(p->ddp.forward_sync_buffers > 0));
    else if (!p->ddp.broadcast_buffers)      /* true is the default; the word is deprecated in 2.15 */
        fprintf(to, "    broadcast_buffers=False,\n");
    fprintf(to, ")\n");
    print_hook(p, to);
}

static void export_ddp(const struct plan *p, FILE *to)
{
    bool wrapped = p->strategy != STRAT_DDP || p->ddp.wrapped;          /* one GPU alone is not */

    if (wrapped)
        fprintf(to, "from torch.nn.parallel import DistributedDataParallel\n");
    if (p->strategy == STRAT_ZERO1)
        fprintf(to, "from torch.distributed.optim import ZeroRedundancyOptimizer\n");
    if (p->ddp.comm_hook != HOOK_NONE)
        fprintf(to, "from torch.distributed.algorithms.ddp_comm_hooks import %s\n",
                comm_hook(p->ddp.comm_hook)->module);
    fputc('\n', to);
    print_recompute(p, to);
    print_model_dtype(p, p->ddp.model_dtype, to);
    if (wrapped)
        print_ddp(p, to);
    if (p->strategy == STRAT_ZERO1)
        fprintf(to, "optimizer = ZeroRedundancyOptimizer(\n    model.parameters(),\n"
                "    optimizer_class=torch.optim.AdamW%s,\n    parameters_as_bucket_view=%s,\n)\n",
                form_of(p), py(p->ddp.parameters_as_bucket_view));
    if (p->precision != DT_FP32 && (p->ddp.model_dtype < 0 || plan_has_wide_adapters(p)))
        fprintf(to, "# forward and loss under torch.autocast(\"cuda\", dtype=%s)\n",
                torch_dtype(p->precision));
    if (wrapped && !p->sync_every_micro_step && p->accumulation > 1)
        fprintf(to, "# all micro-steps but the last: with model.no_sync(): ...\n");
}

static void print_rest(const struct plan *p, FILE *to)
{
    if (p->strategy != STRAT_ZERO1)
        fprintf(to, "optimizer = torch.optim.AdamW(model.parameters()%s)\n", form_of(p));
    fprintf(to, "# a step: %" PRId64 " micro-steps of %" PRId64 " samples of %s on each rank\n", p->accumulation, p->micro_batch,
            sample_text(&p->model, p->seq).s);
    bool fsdp1 = p->dialect == DIALECT_TORCH_FSDP1;
    if (p->fsdp.cpu_offload && p->clip > 0 && !fsdp1)
        fprintf(to, "# the norm of gradients on the CPU needs init_process_group(\"cpu:gloo,cuda:nccl\")\n");
    if (p->clip > 0 && fsdp1)
        fprintf(to, "# then model.clip_grad_norm_(%.17g)\n", p->clip);
    else if (p->clip > 0)
        fprintf(to, "# then torch.nn.utils.clip_grad_norm_(model.parameters(), %.17g)\n", p->clip);
}

static void print_wrapping(const struct plan *p, const char *blocks, FILE *to)
{
    if (p->strategy != STRAT_FSDP)
        export_ddp(p, to);
    else if (p->dialect == DIALECT_TORCH)
        export_fsdp2(p, blocks, to);
    else
        export_fsdp1(p, blocks, to);
}

/* The model config's own. */
static double usual_dropout(const struct plan *p)
{
    return knob_default(p, knob_find("", "dropout", knob_cell(p)));
}

/* PEFT's adapters, before anything is wrapped or cast. */
static void print_adapters(const struct training *t, FILE *to)
{
    bool all = !strcmp(t->target_modules, "all-linear");

    fprintf(to, "from peft import LoraConfig, get_peft_model\n\nmodel = get_peft_model(model, LoraConfig(\n    r=%" PRId64 ",\n    lora_alpha=%.17g,\n"
            "    lora_dropout=%.17g,\n", t->rank, t->alpha, t->dropout);
    if (t->target_modules[0])
        fprintf(to, all ? "    target_modules=\"%s\",\n" : "    target_modules=\"%s\".split(\",\"),\n", t->target_modules);
    if (t->modules_to_save[0])
        fprintf(to, "    modules_to_save=\"%s\".split(\",\"),\n", t->modules_to_save);
    fprintf(to, "    task_type=\"CAUSAL_LM\",\n))\n");
}

int export_torch(const struct plan *p, FILE *to)
{
    bool torch = p->dialect == DIALECT_TORCH || p->dialect == DIALECT_TORCH_FSDP1;
    char blocks[64] = "";

    if (!torch || p->strategy == STRAT_DP)
        return fail("export to fsdp: strategy: %s/%s is not PyTorch's DDP, FSDP or "
                    "ZeroRedundancyOptimizer", strategy_name(p->strategy), dialect_name(p->dialect));
    if (p->parallel.expert > 1)
        return refuse("parallel.expert", "the experts' module is torchtitan's: export --to torchtitan");
    if (p->optimizer != OPTIMIZER_ADAMW)
        return refuse("optimizer", "the script makes torch.optim.AdamW; export a plan with adamw and put yours in its place");
    if (p->deterministic)
        return refuse("deterministic", "PyTorch has no such reduction");
    if (p->model.head != HEAD_LOGITS && training_is_lora(&p->train))
        return refuse("train", "the script's adapters are of a language model, not of a head of one number");
    if (p->loss != LOSS_FP32)
        return refuse("loss", "transformers' own is in fp32; the loss is code of yours");
    if (p->logits_kept != LOGITS_DROPPED)
        return refuse("logits_kept", "the loop that is printed names no logits");
    if (p->liger.rope || p->liger.rms_norm || p->liger.glu_activation)
        return refuse("liger", "call liger_kernel.transformers' apply_liger_kernel_to_...() by hand");
    if (p->recompute == RECOMPUTE_SELECTIVE || p->recompute == RECOMPUTE_MODULES || p->recompute == RECOMPUTE_OP || p->recompute == RECOMPUTE_OFFLOAD || p->recompute_interval > 1)
        return refuse("recompute", "transformers recomputes whole blocks, all or none, and keeps their inputs on the GPU");
    if (p->fsdp.reads_positions)
        return refuse("fsdp.reads_positions", "the loop that is printed reads no positions back");
    if (p->fsdp.grouped_experts)
        return refuse("fsdp.grouped_experts", "the model that is printed is transformers'");
    if (p->fsdp.optimizer_offload)
        return refuse("fsdp.optimizer_offload", "copy the optimizer's states from and to the host around its step by hand, as prime-rl does");
    if (p->activation_offload != OFFLOAD_NOTHING)
        return refuse("activation_offload", "wrap the forward pass in torch.autograd.graph.save_on_cpu() by hand");
    if (p->float8.recipe != FLOAT8_NONE)
        return refuse("fp8", "call torchao's convert_to_float8_training() by hand; export --to torchtitan has it");
    if (p->qat.kind != QAT_NONE)
        return refuse("qat", "call torchao's Int8DynActInt4WeightQATQuantizer(groupsize=...).prepare(model) by hand, before the wrapping");
    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER)
        return refuse("kernels", "transformers runs torch-sdpa and torch-eager; compile the blocks by hand, or export --to torchtitan");
    if (p->dropout < usual_dropout(p) || p->dropout > usual_dropout(p))
        return refuse("dropout", "it is in the model's config: change it there, and plan with that");
    if (!names_units(p) && blocks_path(&p->model, blocks, sizeof blocks) < 0)
        return -1;
    if (p->train.base != BASE_PLAIN)
        return refuse("base_dtype", "from_pretrained() packs weights (BitsAndBytesConfig), before this script: export --to axolotl or llamafactory");
    if (p->train.target_parameters[0])
        return refuse("lora.target_parameters", "name them in PEFT's LoraConfig by hand");
    if (p->train.dora)
        return refuse("lora.use_dora", "the plan's is torchtune's, and PEFT's is another");
    if (p->train.dropout_position == DROPOUT_POST)
        return refuse("lora.dropout_position", "PEFT's dropout is on what adapters read");
    fprintf(to, "import torch\n");
    if (training_is_lora(&p->train))
        print_adapters(&p->train, to);
    if (p->fsdp.cpu_offload && p->host_threads > 0)
        fprintf(to, "torch.set_num_threads(%" PRId64 ")\n", p->host_threads);
    print_wrapping(p, blocks, to);
    print_rest(p, to);
    return 0;
}
