/* form_verl_megatron.c -- verl's actor on Megatron-LM: the sections that a config of Megatron-Bridge would have, for the import of those.
 *
 * What verl sets itself (verl/workers/megatron_workers.py, utils/megatron_utils.py: make_megatron_module()): gradients are reduced in fp32 after
 * the last backward, into a distributed optimizer.  With mbridge, which is usual, the transformer's config has megatron-core's own
 * defaults, not those of Megatron-LM's command line (mbridge/core/llm_bridge.py: _build_base_config()): nothing is fused
 * but the norms.  Without it hf_to_mcore_config() fuses bias and activation (models/mcore/config_converter.py).  The head's logits come
 * out of Float16Module in fp32, in which vocab_parallel_cross_entropy() works in place. */
#include <string.h>

#include "model/exchange/megatron_import.h"
#include "model/exchange/unread.h"
#include "model/form/form_verl.h"

#define MEGATRON VERL_ACTOR "megatron."

static int64_t degree(struct form_reading *r, const char *path, const char *key, json_t *model)
{
    const char *word = json_string_value(form_value(r->file->doc, path));
    bool none = word && (!strcmp(word, "null") || !strcmp(word, "None"));       /* hydra's, where a script says it */
    int64_t n = none ? 1 : form_count(r, path, 1);

    if (form_value(r->file->doc, path) && !none)
        json_object_set_new(model, key, json_integer(n));
    return n;
}

static void put_true(json_t *section, const char *key, bool is) { json_object_set_new(section, key, json_boolean(is)); }

/* Fields of megatron-core that the file changes, over those above. */
static void take_over(const struct form_reading *r, const char *path, json_t *section)
{
    const json_t *said = form_value(r->file->doc, path);

    if (json_is_object(said))
        json_object_update(section, (json_t *)(uintptr_t)said);
}

/* mbridge 0.15 (models/qwen3moe.py, mixtral.py, deepseek_v3.py) and hf_to_mcore_config_*() agree on these. */
static void put_experts(const struct model *of, json_t *m)
{
    if (of->kv_rank > 0) {                      /* deepseek_v3.py; it sets no groups of experts */
        json_object_set_new(m, "moe_router_score_function", json_string("sigmoid"));
        put_true(m, "moe_router_enable_expert_bias", true);
    }
    json_object_set_new(m, "moe_token_dispatcher_type", json_string("alltoall"));
    json_object_set_new(m, "moe_router_load_balancing_type", json_string("none"));
    put_true(m, "moe_grouped_gemm", true);
    put_true(m, "bias_activation_fusion", true);
}

static json_t *model_of(struct form_reading *r, const struct model *of, int64_t *tensor, int64_t *pipeline, int64_t *context)
{
    json_t *m = json_object();
    bool bridged = form_true(r, MEGATRON "use_mbridge", true);

    *tensor = degree(r, MEGATRON "tensor_model_parallel_size", "tensor_model_parallel_size", m);
    *pipeline = degree(r, MEGATRON "pipeline_model_parallel_size", "pipeline_model_parallel_size", m);
    *context = degree(r, MEGATRON "context_parallel_size", "context_parallel_size", m);
    degree(r, MEGATRON "virtual_pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", m);
    degree(r, MEGATRON "expert_model_parallel_size", "expert_model_parallel_size", m);
    degree(r, MEGATRON "expert_tensor_parallel_size", "expert_tensor_parallel_size", m);
    put_true(m, "sequence_parallel", *tensor > 1 && form_true(r, MEGATRON "sequence_parallel", true));
    put_true(m, "gradient_accumulation_fusion", false);
    put_true(m, "apply_rope_fusion", false);
    put_true(m, "bias_activation_fusion", !bridged);
    put_true(m, "cross_entropy_loss_fusion", false);
    json_object_set_new(m, "attention_backend", json_string("flash"));
    json_object_set_new(m, "hidden_dropout", json_real(0));
    json_object_set_new(m, "attention_dropout", json_real(0));
    json_object_set_new(m, "make_vocab_size_divisible_by", json_integer(1));
    put_true(m, "bf16", true);
    if (of->experts > 0)
        put_experts(of, m);
    take_over(r, MEGATRON "override_transformer_config", m);
    if (bridged && !form_true(r, MEGATRON "vanilla_mbridge", true))
        form_fail(r, MEGATRON "vanilla_mbridge: False: models of Megatron-Bridge's provider are not read: mbridge's own are");
    return m;
}

static json_t *optimizer_of(struct form_reading *r)
{
    static const char *const optimizers[] = { "adam", NULL };
    json_t *o = json_object();

    form_word(r, VERL_ACTOR "optim.optimizer", optimizers, 0);
    json_object_set_new(o, "optimizer", json_string("adam"));
    json_object_set_new(o, "clip_grad", json_real(form_number(r, VERL_ACTOR "optim.clip_grad", 1)));
    put_true(o, "use_distributed_optimizer", form_true(r, MEGATRON "use_distributed_optimizer", true));
    take_over(r, VERL_ACTOR "optim.override_optimizer_config", o);
    return o;
}

static json_t *sections_of(struct form_reading *r, const struct plan *p)
{
    int64_t tensor, pipeline, context;
    json_t *model = model_of(r, &p->model, &tensor, &pipeline, &context), *ddp = json_object();
    int64_t sharing = form_ranks(tensor, pipeline, context);

    if (p->cluster.world_size % sharing) {
        form_fail(r, MEGATRON "tensor_model_parallel_size: %lld ranks that share a model do not divide the cluster's %lld GPUs", (long long)sharing,
                  (long long)p->cluster.world_size);
        sharing = 1;
    }
    struct verl_batch b = verl_batch_of(r, p, sharing, context);
    verl_read_beside(r, p, &b);
    json_object_set_new(model, "seq_length", json_integer(b.seq));
    put_true(ddp, "use_distributed_optimizer", form_true(r, MEGATRON "use_distributed_optimizer", true));
    put_true(ddp, "grad_reduce_in_fp32", true);
    put_true(ddp, "overlap_grad_reduce", false);
    take_over(r, MEGATRON "override_ddp_config", ddp);
    return json_pack("{s:o, s:o, s:o, s:{s:I, s:I}}", "model", model, "ddp", ddp, "optimizer", optimizer_of(r), "train", "micro_batch_size", (json_int_t)b.micro,
                     "global_batch_size", (json_int_t)(b.micro * b.steps * (p->cluster.world_size / sharing)));
}

int verl_read_megatron(struct form_reading *r, struct plan *p)
{
    static const char *const dtypes[] = { "bfloat16", NULL }, *const strategies[] = { "megatron", NULL };
    json_t *options = NULL;
    int rc = -1;

    bool fuses = verl_fuses(r);

    form_word(r, VERL_ACTOR "strategy", strategies, 0);
    if (fuses && !strcmp(form_text(r, "trainer.use_legacy_worker_impl", "auto"), "disable"))       /* engine/megatron/transformer_impl.py: NotImplementedError */
        form_fail(r, "actor_rollout_ref.model.use_fused_kernels: verl stops with it on Megatron-LM where trainer.use_legacy_worker_impl is disable");

    form_word(r, MEGATRON "dtype", dtypes, 0);
    if (form_true(r, VERL_ACTOR "calculate_sum_pi_squared", false))
        form_fail(r, VERL_ACTOR "calculate_sum_pi_squared: its copies of the logits are not planned of Megatron-LM's actor");
    if (!fuses)
        verl_refuse_entropy(r);
    if (form_number(r, "actor_rollout_ref.model.lora.rank", 0) > 0 || form_number(r, "actor_rollout_ref.model.lora_rank", 0) > 0)
        form_fail(r, "actor_rollout_ref.model.lora.rank: adapters of Megatron-LM's actor are not planned");
    json_t *sections = sections_of(r, p);
    p->seq = p->micro_batch = p->accumulation = 0;      /* of the command line: they are in the sections */
    if (!r->failed && (options = megatron_options(NULL, sections, r->file->path)))
        rc = megatron_import(options, r->file->path, p);
    if (rc == 0 && fuses) {             /* models/mcore/model_forward_fused.py has no option of Megatron-LM's */
        p->loss = LOSS_ACTOR_KERNEL;
        plan_resolve(p);
        rc = plan_check(p, r->file->path);
    }
    if (rc == 0) {
        notes_add(r->notes, "Megatron-LM's options are those that verl sets, with what actor.megatron and actor.optim change");
        form_list_rest(r->file, r->rows, r->nrows, r->notes);
    }
    json_decref(options);
    json_decref(sections);
    json_decref(r->plan);
    return rc;
}
