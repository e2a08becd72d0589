/* phases_import.c -- phase plans of TRL's GRPOConfig and DPOConfig (1.16) and of verl's ppo_trainer.yaml (fsdp_workers.py),
 * with what verl 0.7.0 takes where a file is silent (trainer/config/rollout/rollout.yaml; 0.8 and 0.9.1 differ where it is said below).
 *
 * The model that trains is read by the form's own reader (dpxplan import); what stands around it is read here.
 *
 * TRL, GRPO: a batch of per_device_train_batch_size x ranks x steps_per_generation responses is generated, then trained on num_iterations
 * times (grpo_trainer.py: _prepare_inputs()).  The engine is vLLM in the same process (vllm_mode colocate), with max_num_seqs
 * per_device_train_batch_size x vllm_tensor_parallel_size x steps_per_generation and max_num_batched_tokens 4096
 * (generation/vllm_generation.py).  With it the log-probabilities are computed again in a forward
 * (vllm_importance_sampling_correction, on unless it is switched off).  With beta above 0 a reference model stays on the GPU, of adapters the model itself
 * without them.  Nothing moves to host memory between phases.
 *
 * DPO of TRL, of axolotl (TRL's trainer) and of LLaMA-Factory: the reference model's forward is in each micro-step (dpo_trainer.py: _compute_loss();
 * llamafactory/train/dpo/trainer.py: get_batch_loss_metrics(), which holds the policy's logits in fp32 meanwhile).  KTO of TRL and axolotl
 * (kto_trainer.py: _compute_loss()): one sequence a sample; before the step's forward one without gradients of completions that belong to other prompts,
 * for the KL term, and behind it the reference model's of both.
 *
 * verl: the actor is offloaded as fsdp_config says, the cache is emptied; a reference model is in bf16 and always in host memory
 * (CPUOffload is forced for it), of adapters the actor itself. */
#include "sim/plan/phases.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/exchange/recipe.h"
#include "model/exchange/recipe_refuses.h"
#include "model/form/form.h"
#include "model/form/form_rows.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"

struct importing { const struct phases_asked *a; const struct form_file *f; struct notes *notes; json_t *roles, *phases; struct plan actor; bool failed; };

static bool is_trl(const struct form_file *f, enum trl_trainer t)
{
    return f->doc && form_of_quietly(f) == &form_trl && recipe_trl_trainer(f->doc) == t;
}

/* DPO of a recipe that transformers' Trainer runs. */
static bool is_dpo(const struct form_file *f)
{
    const struct form *form = f->doc ? form_of_quietly(f) : NULL;
    const char *refers = form == &form_factory ? recipe_refers(f->doc, RECIPE_FACTORY) : form == &form_axolotl ? recipe_refers(f->doc, RECIPE_AXOLOTL) : NULL;

    return is_trl(f, TRL_DPO) || (refers && (!strcmp(refers, "dpo") || !strcmp(refers, "ipo")));
}

/* KTO by TRL's trainer, which axolotl has, too. */
static bool is_kto(const struct form_file *f)
{
    const struct form *form = f->doc ? form_of_quietly(f) : NULL;
    const char *refers = form == &form_axolotl ? recipe_refers(f->doc, RECIPE_AXOLOTL) : NULL;

    return is_trl(f, TRL_KTO) || (refers && !strcmp(refers, "kto"));
}

bool phases_beside(const struct form_file *f)
{
    const struct form *form = f->doc ? form_of_quietly(f) : NULL;

    return is_dpo(f) || is_kto(f) || (form == &form_trl && is_trl(f, TRL_GRPO) && recipe_refers(f->doc, RECIPE_TRL));
}

/* Whose recipe it is: NeMo-RL's and prime-rl's have sections that no form here claims, or that come without what it goes by.  NULL: none's. */
static const char *whose(const struct form_file *f)
{
    static const char *const algorithms[] = { "grpo", "dpo", "rm", "distillation" };
    const struct form *form = form_of_quietly(f);
    bool one = form_value(f->doc, "policy.generation") != NULL;

    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        one |= json_is_object(json_object_get(f->doc, algorithms[i]));
    if (one && json_is_object(json_object_get(f->doc, "policy")))
        return "NeMo-RL";
    if (json_is_object(json_object_get(f->doc, "orchestrator")))
        return "prime-rl";
    return form && form != &form_trl && form != &form_verl ? form->name : NULL;
}

void phases_not_read(const struct form_file *f)
{
    const char *name = whose(f);

    if (name)
        fail("%s: a recipe of %s: phases are read from TRL's GRPO, from DPO of TRL, LLaMA-Factory and axolotl, from KTO of TRL and axolotl, and from verl: write a phase plan (docs/howto/phases.md), or take dpxplan import "
             "where one model trains", f->path, name);
    else
        fail("%s: neither a phase plan (\"dpx_phases\": 1) nor a config of TRL's GRPO, of DPO (TRL, LLaMA-Factory, axolotl), of KTO (TRL, axolotl) or of verl; the plan of one step is for dpxplan eval", f->path);
}

bool phases_imports(const struct form_file *f) { return f->doc && (form_of_quietly(f) == &form_verl || is_trl(f, TRL_GRPO) || is_dpo(f) || is_kto(f)); }

/* ---- values ---- */

/* The first value of another kind is reported, and makes the import fail. */
static void refuse(struct importing *in, const char *path, const char *want)
{
    if (!in->failed)
        fail("%s: %s: expected %s", in->f->path, path, want);
    in->failed = true;
}

static double number_at(struct importing *in, const char *path, double usual)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);
    char *end = NULL;
    double x = s ? strtod(s, &end) : json_number_value(v);

    if (!v)
        return usual;
    if (isfinite(x) && (s ? *s && !*end : json_is_number(v)))
        return x;
    refuse(in, path, "a number");
    return usual;
}

static int64_t count_at(struct importing *in, const char *path, int64_t least, int64_t usual)
{
    double x = number_at(in, path, (double)usual);

    if (!form_value(in->f->doc, path))
        return usual;
    if (x >= (double)least && x <= 1e12 && x == floor(x))
        return (int64_t)x;
    refuse(in, path, least ? "a whole number from 1 on" : "a whole number, not negative");
    return usual;
}

static bool flag_at(struct importing *in, const char *path, bool usual)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);

    if (!v)
        return usual;
    if (json_is_boolean(v) || (json_is_integer(v) && json_integer_value(v) >> 1 == 0))
        return json_is_true(v) || json_integer_value(v) == 1;
    if (s && (!strcasecmp(s, "true") || !strcasecmp(s, "false")))
        return !strcasecmp(s, "true");
    refuse(in, path, "true or false");
    return usual;
}

static const char *text_at(struct importing *in, const char *path, const char *usual)
{
    const json_t *v = form_value(in->f->doc, path);

    if (v && !json_is_string(v))
        refuse(in, path, "a text");
    return json_is_string(v) ? json_string_value(v) : usual;
}

/* Notes of the form's reader that say what a plan of one step has not, and the phases have. */
static void say_rest(const json_t *said)
{
    static const char *const followed[] = { "loss_type is not given", "the plan is the", "GRPO has no reference model", "use_kl_loss is not in the plan", "param_offload is not in the plan",
                                            "optimizer_offload is not in the plan", "gpu_memory_utilization is not in the plan" };
    size_t i;
    json_t *line;

    json_array_foreach((json_t *)(uintptr_t)said, i, line) {
        const char *text = json_string_value(line);
        bool known = false;
        for (size_t k = 0; k < sizeof followed / sizeof *followed; k++)
            known |= strstr(text, followed[k]) != NULL;
        if (!known)
            notes_say("%s", text);
    }
}

/* The model that trains, by the form's own reader from `doc`.  0, or -1 reported. */
static int read_actor(struct importing *in, json_t *doc)
{
    struct import_args args = IMPORT_ARGS;
    struct form_file f;

    args.model = in->a->plan.model;
    args.model_doc = in->a->plan.model_doc;
    args.cluster = in->a->plan.cluster;
    args.cluster_doc = in->a->plan.cluster_doc;
    args.seq = in->a->plan.seq;
    form_from_doc(doc, in->f->path, &f);
    f.launch = in->f->launch ? json_incref(in->f->launch) : NULL;
    json_t *said = json_array(), *before = notes_divert(said);
    int rc = convert_form(&args, &f, &in->actor) == EXIT_DONE ? 0 : -1;
    notes_divert(before);
    say_rest(said);
    json_decref(said);
    form_close(&f);
    return rc;
}

static void add_role(struct importing *in, const char *name, json_t *role) { json_object_set_new(in->roles, name, role); }
static void add_phase(struct importing *in, json_t *phase) { json_array_append_new(in->phases, phase); }

/* --response, or all as long as they may be. */
static int read_response(struct importing *in, int64_t longest, json_t **out)
{
    double mean = (double)longest, most = (double)longest;
    int read = 0;

    if (in->a->response && (sscanf(in->a->response, "%lf,%lf%n", &mean, &most, &read) != 2 || in->a->response[read] || !(mean >= 1) || !(most >= mean)))
        return fail("--response: \"%.40s\" is not a mean and a longest, as 700,2048", in->a->response);
    if (most > (double)longest)
        return fail("--response: %g tokens at most, but the file has %" PRId64, most, longest);
    if (!in->a->response)
        notes_add(in->notes, "responses are taken as long as they may be, %" PRId64 " tokens: --response MEAN,LONGEST says otherwise", longest);
    *out = json_pack("{s:f, s:f}", "mean", mean, "longest", most);
    return 0;
}

static json_t *document(struct importing *in, const char *framework, int64_t samples, int64_t of_prompt, int64_t prompt, json_t *response)
{
    json_t *doc = json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:O, s:O}", "dpx_phases", 1, "framework", framework, "cluster", cluster_to_json(&in->actor.cluster),
                            "samples", (json_int_t)samples, "of_prompt", (json_int_t)of_prompt, "prompt", (json_int_t)prompt, "roles", in->roles, "phases", in->phases);

    if (response)
        json_object_set_new(doc, "response", response);
    return doc;
}

/* ---- TRL ---- */

/* The same recipe as one of SFT, of which a micro-batch has `sequences` of each sample: DPO's chosen and rejected one, KTO's only one. */
static json_t *as_sft(struct importing *in, int64_t sequences)
{
    static const char *const dpos[] = {
        "beta", "precompute_ref_log_probs", "max_prompt_length", "rpo_alpha", "sync_ref_model", "reference_free", "loss_type", "ref_model_mixup_alpha", "use_weighting",
        "loss_weights", "label_smoothing",
        "pref_beta", "pref_loss", "pref_ftx", "pref_bco_weight", "dpo_label_smoothing", "ld_alpha",                    /* LLaMA-Factory's */
        "desirable_weight", "undesirable_weight", "kto_desirable_weight", "kto_undesirable_weight",
        "rl", "rl_beta", "rl_adapter_ref_model", "dpo_use_weighting", "dpo_label_smoothing", "dpo_norm_loss", "dpo_loss_type",  /* axolotl's */
    };
    json_t *doc = json_deep_copy(in->f->doc);
    const char *batch = json_object_get(doc, "base_model") ? "micro_batch_size" : "per_device_train_batch_size";

    for (size_t i = 0; i < sizeof dpos / sizeof *dpos; i++)
        json_object_del(doc, dpos[i]);
    if (json_object_get(doc, "base_model") && json_is_true(json_object_get(doc, "gradient_checkpointing")) &&
        !json_object_get(doc, "gradient_checkpointing_kwargs"))      /* axolotl: reentrant without rl alone */
        json_object_set_new(doc, "gradient_checkpointing_kwargs", json_pack("{s:b}", "use_reentrant", 0));
    if (json_object_get(doc, "stage"))
        json_object_set_new(doc, "stage", json_string("sft"));
    else if (!json_object_get(doc, "base_model")) {
        const char *program = json_string_value(json_object_get(doc, RECIPE_TRL_PROGRAM));
        json_object_set_new(doc, RECIPE_TRL_PROGRAM, json_sprintf("sft%.40s", program && strlen(program) > 3 ? program + 3 : ""));    /* dpo_vlm: sft_vlm */
    }
    json_object_set_new(doc, batch, json_integer(sequences * count_at(in, batch, 1, json_object_get(doc, "base_model") ? 1 : 8)));
    return doc;
}

/* A reference model of its own that is not the policy's copy, and LLaMA-Factory's copy under FSDP, which has another format. */
static int dpo_refuses(struct importing *in)
{
    static const char *const others[] = { "ref_model", "ref_model_adapters", "ref_model_quantization_bit", "ref_model_name_or_path" };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (form_value(in->f->doc, others[i]))
            return fail("%s: %s: a reference model that is another one than the policy is not planned from recipes: write a phase plan (docs/howto/phases.md)",
                        in->f->path, others[i]);
    return 0;
}

/* LLaMA-Factory loads the copy without gradients, and so in the 16 bits that it computes in (model/adapter.py casts what trains alone). */
static json_t *reference_plan(struct importing *in, bool adapts)
{
    json_t *plan = plan_to_json(&in->actor);
    bool factory = form_of_quietly(in->f) == &form_factory;

    if (factory && !adapts && in->actor.strategy == STRAT_FSDP) {
        fail("%s: finetuning_type: full: LLaMA-Factory's reference model under FSDP is not planned: under DDP or DeepSpeed it is", in->f->path);
        in->failed = true;
    } else if (factory && !adapts && in->actor.dialect == DIALECT_TORCH && in->actor.precision != DT_FP32) {
        json_object_set_new(knob_object_at(plan, "ddp"), "model_dtype", json_string(dtype_name(in->actor.precision)));
        json_object_del(plan, "reduce_dtype");
    }
    return plan;
}

static void dpo_phases(struct importing *in)
{
    bool factory = form_of_quietly(in->f) == &form_factory, own = flag_at(in, "rl_adapter_ref_model", false);
    bool adapts = in->actor.model.trainable < in->actor.model.params && !own;
    int64_t logits = in->actor.micro_batch * in->actor.seq * in->actor.model.vocab * 4;

    add_role(in, "reference", json_pack("{s:o, s:b}", "infer", reference_plan(in, adapts), "shares_weights", adapts));
    add_phase(in, factory ? json_pack("{s:s, s:s, s:s, s:I}", "name", "update", "update", "policy", "beside", "reference", "held_bytes", (json_int_t)logits) :
                            json_pack("{s:s, s:s, s:s}", "name", "update", "update", "policy", "beside", "reference"));
}

static json_t *dpo(struct importing *in)
{
    if (in->a->response) {
        fail("--response: DPO generates no responses: its samples are in the data");
        return NULL;
    }
    if (dpo_refuses(in) < 0)
        return NULL;
    json_t *doc = as_sft(in, 2);
    bool before = flag_at(in, "precompute_ref_log_probs", false), trl = form_of_quietly(in->f) == &form_trl;
    int rc = read_actor(in, doc);

    json_decref(doc);
    if (rc < 0)
        return NULL;
    notes_add(in->notes, "each sample is a chosen and a rejected sequence, which run as one batch");
    if (trl && !form_value(in->f->doc, RECIPE_TRL_PROGRAM) && !form_value(in->f->doc, "loss_type"))
        notes_add(in->notes, "read as DPO's by its keys (beta, max_prompt_length ...): ORPO and CPO, whose configs have them too, are not planned; KTO is told by desirable_weight");
    if (trl)
        notes_add(in->notes, "the loss of DPO is planned as that of SFT over the same tokens: TRL 1.16 computes log-probabilities in chunks (add_fused_lm_head()), "
                  "older ones hold the logits whole");
    else
        notes_add(in->notes, "the loss of DPO is planned as that of SFT over the same tokens: log-probabilities of whole logits in fp32");
    add_role(in, "policy", json_pack("{s:o}", "train", plan_to_json(&in->actor)));
    if (before) {
        notes_add(in->notes, "precompute_ref_log_probs: the reference model has run before the training: it is not there");
        add_phase(in, json_pack("{s:s, s:s}", "name", "update", "update", "policy"));
    } else
        dpo_phases(in);
    return document(in, form_of_quietly(in->f)->name, plan_global_batch(&in->actor), 1, 0, NULL);
}

/* loss_type apo_zero_unpaired has no KL term. */
static json_t *kto(struct importing *in)
{
    bool divergence = strcmp(text_at(in, "loss_type", "kto"), "apo_zero_unpaired") != 0, before = flag_at(in, "precompute_ref_log_probs", false);

    if (in->a->response) {
        fail("--response: KTO generates no responses: its samples are in the data");
        return NULL;
    }
    if (dpo_refuses(in) < 0)
        return NULL;
    json_t *doc = as_sft(in, 1);
    int rc = read_actor(in, doc);
    json_decref(doc);
    if (rc < 0)
        return NULL;
    if (divergence && in->actor.micro_batch < 2) {
        fail("%s: per_device_train_batch_size: TRL's KTO takes 2 at least: its KL term is of the batch's completions, each with another prompt", in->f->path);
        return NULL;
    }
    bool adapts = in->actor.model.trainable < in->actor.model.params && !flag_at(in, "rl_adapter_ref_model", false);
    notes_add(in->notes, "the loss of KTO is planned as that of SFT over the same tokens: TRL 1.16 computes log-probabilities in chunks (add_fused_lm_head()), "
              "older ones hold the logits whole");
    add_role(in, "policy", json_pack("{s:o}", "train", plan_to_json(&in->actor)));
    if (divergence)
        add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "KL", "forward", "policy", "micro_batch", (json_int_t)in->actor.micro_batch));
    if (before) {
        notes_add(in->notes, "precompute_ref_log_probs: the reference model has run before the training: it is not there");
        add_phase(in, json_pack("{s:s, s:s}", "name", "update", "update", "policy"));
    } else {
        add_role(in, "reference", json_pack("{s:o, s:b}", "infer", reference_plan(in, adapts), "shares_weights", adapts));
        add_phase(in, json_pack("{s:s, s:s, s:s, s:i}", "name", "update", "update", "policy", "beside", "reference", "beside_forwards", divergence ? 2 : 1));
    }
    return document(in, form_of_quietly(in->f)->name, plan_global_batch(&in->actor), 1, 0, NULL);
}

static int trl_engine(struct importing *in, int64_t steps, int64_t prompt, int64_t longest)
{
    int64_t each = count_at(in, "per_device_train_batch_size", 1, 8), tensor = count_at(in, "vllm_tensor_parallel_size", 1, 1);
    bool sleeps = flag_at(in, "vllm_enable_sleep_mode", false);

    if (!flag_at(in, "use_vllm", false))
        return fail("%s: use_vllm is not set: generation by transformers (model.generate()) is not planned: set use_vllm: true", in->f->path);
    if (strcmp(text_at(in, "vllm_mode", "colocate"), "colocate") != 0)
        return fail("%s: vllm_mode: server: the server's GPUs are not in this file: write a phase plan in which the engine has a \"cluster\" of its own "
                    "(docs/howto/phases.md)", in->f->path);
    notes_add(in->notes, "vLLM's context holds a prompt and a response, %" PRId64 " tokens", prompt + longest);
    add_role(in, "engine", json_pack("{s:s, s:I, s:f, s:I, s:i, s:i, s:b}", "engine", "vllm", "tensor", (json_int_t)tensor, "gpu_memory_utilization",
                                     number_at(in, "vllm_gpu_memory_utilization", 0.3), "max_num_seqs", (json_int_t)(each * tensor * steps),
                                     "max_num_batched_tokens", 4096, "sleep", sleeps ? 2 : 0, "own_process", 0));
    return 0;
}

/* Micro-steps whose samples are generated at once (grpo_config.py: __post_init__()). */
static int64_t trl_steps(struct importing *in, int64_t each)
{
    int64_t all = count_at(in, "generation_batch_size", 1, in->actor.accumulation * each), steps = count_at(in, "steps_per_generation", 1, all / each);

    if (form_value(in->f->doc, "generation_batch_size") && form_value(in->f->doc, "steps_per_generation"))
        refuse(in, "generation_batch_size", "none beside steps_per_generation: TRL takes one of them");
    else if (all % each)
        refuse(in, "generation_batch_size", "a multiple of per_device_train_batch_size times the ranks, as TRL does");
    return steps;
}

static int trl_refuses(struct importing *in, int64_t batch, int64_t n, int64_t context)
{
    int64_t window = count_at(in, "vllm_max_model_length", 1, context);

    if (form_value(in->f->doc, "reward_model_name_or_path"))
        return fail("%s: reward_model_name_or_path: a reward model, with a head of one value, is not planned: rewards by functions are", in->f->path);
    if (n < 2 || batch % n)
        return fail("%s: num_generations: %" PRId64 ": TRL takes 2 or more, by which the %" PRId64 " samples that are generated at once divide", in->f->path, n, batch);
    if (window < context)
        return fail("%s: vllm_max_model_length: %" PRId64 " tokens are fewer than a prompt and the longest response have, %" PRId64, in->f->path, window, context);
    return 0;
}

static json_t *trl_grpo(struct importing *in)
{
    json_t *doc = json_deep_copy(in->f->doc), *response = NULL;
    bool refers = number_at(in, "beta", 0) > 0, adapts;

    json_object_set_new(doc, "beta", json_real(0));
    json_object_set_new(doc, RECIPE_TRL_PROGRAM, json_string("grpo"));
    int rc = read_actor(in, doc);
    json_decref(doc);
    if (rc < 0)
        return NULL;
    int64_t prompt = count_at(in, "max_prompt_length", 0, 512), longest = count_at(in, "max_completion_length", 1, 512);
    int64_t micro = in->actor.micro_batch, each = micro * plan_batch_ranks(&in->actor);
    int64_t steps = trl_steps(in, each), n = count_at(in, "num_generations", 1, 8);
    bool sleeps = flag_at(in, "vllm_enable_sleep_mode", false);
    adapts = in->actor.model.trainable < in->actor.model.params;
    if (trl_refuses(in, each * steps, n, prompt + longest) < 0 || trl_engine(in, steps, prompt, longest) < 0 || read_response(in, longest, &response) < 0)
        return NULL;
    add_role(in, "policy", json_pack("{s:o, s:b}", "train", plan_to_json(&in->actor), "empties_cache", sleeps));
    if (refers && !adapts)
        add_role(in, "reference", json_pack("{s:s}", "infer", "policy"));
    add_phase(in, json_pack("{s:s, s:s, s:s}", "name", "weights", "hand_over", "policy", "to", "engine"));
    add_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    if (flag_at(in, "vllm_importance_sampling_correction", true))
        add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "log-probs", "forward", "policy", "micro_batch", (json_int_t)micro));
    if (refers)
        add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "reference", "forward", adapts ? "policy" : "reference", "micro_batch", (json_int_t)micro));
    add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "update", "update", "policy", "epochs", (json_int_t)count_at(in, "num_iterations", 1, 1)));
    notes_add(in->notes, "rewards by functions take no time and no memory here; a reward model is not planned");
    return document(in, "TRL", each * steps, n, prompt, response);
}

/* ---- verl ---- */

#define ROLLOUT "actor_rollout_ref.rollout."
#define ACTOR   "actor_rollout_ref.actor."
#define REF     "actor_rollout_ref.ref."

/* What the file asks for and no phase plan has. */
static int verl_refuses(struct importing *in)
{
    const char *estimator = text_at(in, "algorithm.adv_estimator", "gae"), *engine = text_at(in, ROLLOUT "name", "vllm");

    bool gae = !strcmp(estimator, "gae");
    if (flag_at(in, "critic.enable", gae))
        return fail("%s: %s%s: a critic, a model with a head of one value, is not planned: grpo, rloo and reinforce_plus_plus have none", in->f->path,
                    gae ? "algorithm.adv_estimator: gae" : "critic.enable", gae && !form_value(in->f->doc, "algorithm.adv_estimator") ? " (usual)" : "");
    if (!strcmp(estimator, "remax"))
        return fail("%s: algorithm.adv_estimator: remax: the greedy response to each prompt, generated beside the others, is not planned", in->f->path);
    if (flag_at(in, "algorithm.filter_groups.enable", false))
        return fail("%s: algorithm.filter_groups.enable: how many batches are generated until enough groups differ is not known beforehand", in->f->path);
    if (!flag_at(in, "actor_rollout_ref.hybrid_engine", true))
        return fail("%s: actor_rollout_ref.hybrid_engine: false: verl's main_ppo takes true alone", in->f->path);
    if (strcmp(text_at(in, ROLLOUT "checkpoint_engine.backend", "naive"), "naive") != 0)
        return fail("%s: " ROLLOUT "checkpoint_engine.backend: an engine on GPUs of its own is not read from verl's files: write a phase plan", in->f->path);
    if (form_value(in->f->doc, ROLLOUT "quantization"))
        return fail("%s: " ROLLOUT "quantization: quantised weights in an engine are not planned", in->f->path);
    if (form_value(in->f->doc, REF "model.path"))
        return fail("%s: " REF "model.path: a reference model that is another one than the actor is not planned from verl's files: write a phase plan", in->f->path);
    if (!strncmp(text_at(in, REF "strategy", ""), "megatron", 8))
        return fail("%s: " REF "strategy: megatron: the reference model is planned as a copy of the actor", in->f->path);
    if (flag_at(in, "reward_model.enable", false))
        return fail("%s: reward_model.enable: a model with a head of one value is not planned: rewards by functions are", in->f->path);
    if (strcmp(engine, "vllm") != 0 && strcmp(engine, "sglang") != 0)
        return fail("%s: " ROLLOUT "name: %.40s: vllm and sglang are planned", in->f->path, engine);
    if (count_at(in, ROLLOUT "pipeline_model_parallel_size", 1, 1) > 1 || count_at(in, ROLLOUT "data_parallel_size", 1, 1) > 1 ||
        count_at(in, ROLLOUT "expert_parallel_size", 1, 1) > 1)
        return fail("%s: " ROLLOUT "*_parallel_size: an engine with pipeline, data or expert parallelism is not planned: tensor parallelism is", in->f->path);
    return in->failed ? -1 : 0;
}

static const char *verl_dtype(struct importing *in)
{
    static const char *const names[][2] = { { "bfloat16", "bf16" }, { "float16", "fp16" }, { "half", "fp16" }, { "float32", "fp32" }, { "float", "fp32" } };
    const char *said = text_at(in, ROLLOUT "dtype", "bfloat16");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(said, names[i][0]))
            return names[i][1];
    refuse(in, ROLLOUT "dtype", "bfloat16, float16 or float32");
    return "bf16";
}

/* third_party/vllm/__init__.py: VLLM_SLEEP_LEVEL is 2 from vLLM 0.8.5 on; 1 where layers are summoned one by one (vllm_rollout.py), and from
 * 0.9 on where adapters alone are handed over (engine_workers.py: update_weights()). */
static int verl_sleep(struct importing *in, bool vllm)
{
    if (!flag_at(in, ROLLOUT "free_cache_engine", true))
        return 0;
    return vllm && flag_at(in, ROLLOUT "layered_summon", false) ? 1 : 2;
}

static void verl_engine(struct importing *in, bool adapts)
{
    bool vllm = !strcmp(text_at(in, ROLLOUT "name", "vllm"), "vllm");
    int sleep = verl_sleep(in, vllm);

    add_role(in, "engine", json_pack("{s:s, s:s, s:I, s:f, s:I, s:I, s:b, s:i}", "engine", vllm ? "vllm" : "sglang", "dtype", verl_dtype(in), "tensor",
                                     (json_int_t)count_at(in, ROLLOUT "tensor_model_parallel_size", 1, 2), vllm ? "gpu_memory_utilization" : "mem_fraction_static",
                                     number_at(in, ROLLOUT "gpu_memory_utilization", 0.5), "max_num_seqs", (json_int_t)count_at(in, ROLLOUT "max_num_seqs", 1, 1024),
                                     "max_num_batched_tokens", (json_int_t)count_at(in, ROLLOUT "max_num_batched_tokens", 1, 8192), "enforce_eager",
                                     flag_at(in, ROLLOUT "enforce_eager", false), "sleep", sleep));
    if (!form_value(in->f->doc, ROLLOUT "max_num_seqs"))
        notes_add(in->notes, ROLLOUT "max_num_seqs: 1024, as verl 0.7 and 0.8 take it; 0.9 takes 256");
    if (sleep == 2 && adapts)
        notes_add(in->notes, "the engine sleeps without its weights, as with verl 0.7 and vLLM 0.8.5 or newer; verl 0.9 keeps those beneath adapters");
}

/* The reference model: bf16, always in host memory. */
static void verl_reference(struct importing *in)
{
    json_t *plan = plan_to_json(&in->actor), *fsdp = json_object_get(plan, "fsdp");

    if (!fsdp) {
        fsdp = json_object();
        json_object_set_new(plan, "fsdp", fsdp);
    }
    json_object_set_new(plan, "accumulation", json_integer(1));
    json_object_set_new(plan, "sync_every_micro_step", json_false());
    json_object_set_new(fsdp, "cpu_offload", json_true());
    json_object_set_new(fsdp, "model_dtype", json_string("bf16"));
    add_role(in, "reference", json_pack("{s:o}", "infer", plan));
}

/* Samples of a micro-step of log-probabilities: as stated, or the longest ones that its tokens hold; both are the actor's unless they are given. */
static int64_t verl_micro(struct importing *in, const char *whose)
{
    char each[100], all[100], tokens[100], dynamic[100];
    const struct plan *p = &in->actor;
    int64_t sharing = p->parallel.context > 1 ? p->parallel.context : 1;

    snprintf(each, sizeof each, "actor_rollout_ref.%s.log_prob_micro_batch_size_per_gpu", whose);
    snprintf(all, sizeof all, "actor_rollout_ref.%s.log_prob_micro_batch_size", whose);
    snprintf(tokens, sizeof tokens, "actor_rollout_ref.%s.log_prob_max_token_len_per_gpu", whose);
    snprintf(dynamic, sizeof dynamic, "actor_rollout_ref.%s.log_prob_use_dynamic_bsz", whose);
    int64_t fit = sharing * count_at(in, tokens, 1, count_at(in, ACTOR "ppo_max_token_len_per_gpu", 1, 16384)) / p->seq;
    int64_t n = count_at(in, each, 1, count_at(in, all, 1, 0) / plan_batch_ranks(p));
    if (flag_at(in, dynamic, flag_at(in, ACTOR "use_dynamic_bsz", false)))
        return fit > 0 ? fit : 1;
    return n > 0 ? n : p->micro_batch;
}

/* Keys of the reference model that are not followed; what is not in the list would change nothing of a phase. */
static void verl_tell_reference(struct importing *in)
{
    static const char *const told[] = { "ulysses_sequence_parallel_size", "fsdp_config.model_dtype", "fsdp_config.fsdp_size", "fsdp_config.offload_policy",
                                        "fsdp_config.reshard_after_forward", "fsdp_config.forward_prefetch", "fsdp_config.ulysses_sequence_parallel_size" };
    char path[100];

    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        snprintf(path, sizeof path, REF "%s", told[i]);
        if (form_value(in->f->doc, path))
            notes_add(in->notes, "%s is not in the plan: the reference model is a copy of the actor, in bf16 and in host memory", path);
    }
}

static void verl_phases(struct importing *in, bool refers, bool adapts)
{
    /* 512 and at its place until 0.7, 2048 in checkpoint_engine since 0.8 */
    bool newer = form_value(in->f->doc, ROLLOUT "checkpoint_engine") != NULL;
    int64_t bucket = (newer ? count_at(in, ROLLOUT "checkpoint_engine.update_weights_bucket_megabytes", 1, 2048)
                            : count_at(in, ROLLOUT "update_weights_bucket_megabytes", 1, 512)) << 20;

    add_phase(in, json_pack("{s:s, s:s, s:s, s:I}", "name", "weights", "hand_over", "actor", "to", "engine", "bucket_bytes", (json_int_t)bucket));
    add_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    if (!flag_at(in, "algorithm.rollout_correction.bypass_mode", false))       /* it takes the engine's own */
        add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "log-probs", "forward", "actor", "micro_batch", (json_int_t)verl_micro(in, "rollout")));
    if (refers)
        add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "reference", "forward", adapts ? "actor" : "reference", "micro_batch", (json_int_t)verl_micro(in, "ref")));
    add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "update", "update", "actor", "epochs", (json_int_t)count_at(in, ACTOR "ppo_epochs", 1, 1)));
}

/* The form's reader does not see the keys that are read here. */
static int verl_actor(struct importing *in)
{
    static const char *const here[] = { "dtype", "update_weights_bucket_megabytes", "checkpoint_engine", "layered_summon", "pipeline_model_parallel_size", "data_parallel_size", "expert_parallel_size" };
    json_t *doc = json_deep_copy(in->f->doc), *rollout = json_object_get(json_object_get(doc, "actor_rollout_ref"), "rollout");

    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        json_object_del(rollout, here[i]);
    json_object_del(json_object_get(rollout, "multi_turn"), "enable");
    int rc = read_actor(in, doc);
    json_decref(doc);
    return rc;
}

static json_t *verl(struct importing *in)
{
    json_t *response = NULL;
    bool params = flag_at(in, ACTOR "fsdp_config.param_offload", false), states = flag_at(in, ACTOR "fsdp_config.optimizer_offload", false);
    bool refers = flag_at(in, ACTOR "use_kl_loss", false) || flag_at(in, "algorithm.use_kl_in_reward", false);
    int64_t prompt = count_at(in, "data.max_prompt_length", 1, 512), longest = count_at(in, "data.max_response_length", 1, 512), n = count_at(in, ROLLOUT "n", 1, 1);

    if (verl_refuses(in) < 0 || verl_actor(in) < 0 || read_response(in, longest, &response) < 0)
        return NULL;
    bool adapts = in->actor.model.trainable < in->actor.model.params;
    add_role(in, "actor", json_pack("{s:o, s:s, s:b}", "train", plan_to_json(&in->actor), "between", states && params ? "host" : states ? "states on host" : params ? "weights on host" : "device",
                                    "empties_cache", 1));
    verl_engine(in, adapts);
    if (refers && !adapts) {
        verl_reference(in);
        verl_tell_reference(in);
    }
    if (count_at(in, ROLLOUT "max_model_len", 1, prompt + longest) < prompt + longest)
        refuse(in, ROLLOUT "max_model_len", "as many tokens at least as a prompt and the longest response have");
    if (flag_at(in, ROLLOUT "multi_turn.enable", false))
        notes_add(in->notes, ROLLOUT "multi_turn.enable: responses are planned as written at once: the time of tools between turns is not in it");
    verl_phases(in, refers, adapts);
    return document(in, "verl", count_at(in, "data.train_batch_size", 1, 1024) * n, n, prompt, response);
}

json_t *phases_import(const struct phases_asked *a, const struct form_file *f, struct notes *notes)
{
    struct importing in = { .a = a, .f = f, .notes = notes, .roles = json_object(), .phases = json_array() };
    json_t *doc = form_of_quietly(f) == &form_verl ? verl(&in) : is_dpo(f) ? dpo(&in) : is_kto(f) ? kto(&in) : trl_grpo(&in);

    if (in.failed) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(in.roles);
    json_decref(in.phases);
    plan_free(&in.actor);
    return doc;
}
