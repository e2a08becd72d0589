/* phases_import.c -- phase plans of TRL's GRPOConfig and DPOConfig (1.16) and of verl's ppo_trainer.yaml (fsdp_workers.py).
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
 * TRL, DPO: the reference model's forward is in each micro-step (dpo_trainer.py: _compute_loss()).
 *
 * verl: the actor is offloaded as fsdp_config says, the cache is emptied; a reference model is in bf16 and always in host memory
 * (CPUOffload is forced for it), of adapters the actor itself. */
#include "sim/plan/phases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/recipe.h"
#include "model/form/form.h"
#include "model/form/form_rows.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"

struct importing { const struct phases_asked *a; const struct form_file *f; struct notes *notes; json_t *roles, *phases; struct plan actor; };

static bool is_trl(const struct form_file *f)
{
    enum trl_trainer t = f->doc && form_of_quietly(f) == &form_trl ? recipe_trl_trainer(f->doc) : TRL_SFT;

    return t == TRL_GRPO || t == TRL_DPO;
}

bool phases_imports(const struct form_file *f) { return f->doc && (form_of_quietly(f) == &form_verl || is_trl(f)); }

/* ---- values ---- */

static int64_t count_at(const struct importing *in, const char *path, int64_t usual)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);

    return json_is_integer(v) ? (int64_t)json_integer_value(v) : json_is_real(v) ? (int64_t)json_real_value(v) : s ? (int64_t)strtoll(s, NULL, 10) : usual;
}

static double number_at(const struct importing *in, const char *path, double usual)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);

    return json_is_number(v) ? json_number_value(v) : s ? strtod(s, NULL) : usual;
}

static bool flag_at(const struct importing *in, const char *path, bool usual)
{
    const json_t *v = form_value(in->f->doc, path);
    const char *s = json_string_value(v);

    return json_is_boolean(v) ? json_is_true(v) : s ? !strcmp(s, "true") || !strcmp(s, "True") : usual;
}

static const char *text_at(const struct importing *in, const char *path, const char *usual)
{
    const char *s = json_string_value(form_value(in->f->doc, path));

    return s ? s : usual;
}

/* Notes of the form's reader that say what a plan of one step has not, and the phases have. */
static void say_rest(const json_t *said)
{
    static const char *const followed[] = { "the plan is the", "GRPO has no reference model", "use_kl_loss is not in the plan", "param_offload is not in the plan",
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
static int read_response(const struct importing *in, int64_t longest, json_t **out)
{
    double mean = (double)longest, most = (double)longest;

    if (in->a->response && (sscanf(in->a->response, "%lf,%lf", &mean, &most) != 2 || !(mean >= 1) || !(most >= mean)))
        return fail("--response: \"%.40s\" is not a mean and a longest, as 700,2048", in->a->response);
    if (most > (double)longest)
        return fail("--response: %g tokens at most, but the file has %" PRId64, most, longest);
    if (!in->a->response)
        notes_add(in->notes, "responses are taken as long as they may be, %" PRId64 " tokens: --response MEAN,LONGEST says otherwise", longest);
    *out = json_pack("{s:f, s:f}", "mean", mean, "longest", most);
    return 0;
}

static json_t *document(const struct importing *in, const char *framework, int64_t samples, int64_t of_prompt, int64_t prompt, json_t *response)
{
    json_t *doc = json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:O, s:O}", "dpx_phases", 1, "framework", framework, "cluster", cluster_to_json(&in->actor.cluster),
                            "samples", (json_int_t)samples, "of_prompt", (json_int_t)of_prompt, "prompt", (json_int_t)prompt, "roles", in->roles, "phases", in->phases);

    if (response)
        json_object_set_new(doc, "response", response);
    return doc;
}

/* ---- TRL ---- */

/* The same recipe as one of SFT, of which a micro-batch has the chosen and the rejected sequence of each sample. */
static json_t *as_sft(const struct importing *in)
{
    static const char *const dpos[] = { "beta", "precompute_ref_log_probs", "max_prompt_length", "rpo_alpha", "sync_ref_model", "reference_free", "loss_type",
                                        "ref_model_mixup_alpha", "use_weighting", "loss_weights", "label_smoothing" };
    json_t *doc = json_deep_copy(in->f->doc);

    for (size_t i = 0; i < sizeof dpos / sizeof *dpos; i++)
        json_object_del(doc, dpos[i]);
    json_object_set_new(doc, RECIPE_TRL_PROGRAM, json_string("sft"));
    json_object_set_new(doc, "per_device_train_batch_size", json_integer(2 * count_at(in, "per_device_train_batch_size", 8)));
    return doc;
}

static json_t *trl_dpo(struct importing *in)
{
    json_t *doc = as_sft(in);
    bool before = flag_at(in, "precompute_ref_log_probs", false);
    int rc = read_actor(in, doc);

    json_decref(doc);
    if (rc < 0)
        return NULL;
    notes_add(in->notes, "each sample is a chosen and a rejected sequence, which run as one batch");
    notes_add(in->notes, "the loss of DPO is planned as that of SFT over the same tokens: TRL 1.16 computes log-probabilities in chunks (add_fused_lm_head()), "
              "older ones hold the logits whole");
    add_role(in, "policy", json_pack("{s:o}", "train", plan_to_json(&in->actor)));
    if (before) {
        notes_add(in->notes, "precompute_ref_log_probs: the reference model has run before the training: it is not there");
        add_phase(in, json_pack("{s:s, s:s}", "name", "update", "update", "policy"));
    } else {
        bool adapts = in->actor.model.trainable < in->actor.model.params;
        add_role(in, "reference", json_pack("{s:o, s:b}", "infer", plan_to_json(&in->actor), "shares_weights", adapts));
        add_phase(in, json_pack("{s:s, s:s, s:s}", "name", "update", "update", "policy", "beside", "reference"));
    }
    return document(in, "TRL", plan_global_batch(&in->actor), 1, 0, NULL);
}

static int trl_engine(struct importing *in, int64_t steps, int64_t prompt, int64_t longest)
{
    int64_t each = count_at(in, "per_device_train_batch_size", 8), tensor = count_at(in, "vllm_tensor_parallel_size", 1);
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
    int64_t prompt = count_at(in, "max_prompt_length", 512), longest = count_at(in, "max_completion_length", 512);
    int64_t micro = in->actor.micro_batch, each = micro * plan_batch_ranks(&in->actor);
    int64_t steps = count_at(in, "steps_per_generation", count_at(in, "generation_batch_size", in->actor.accumulation * each) / each);
    bool sleeps = flag_at(in, "vllm_enable_sleep_mode", false);
    adapts = in->actor.model.trainable < in->actor.model.params;
    if (trl_engine(in, steps, prompt, longest) < 0 || read_response(in, longest, &response) < 0)
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
    add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "update", "update", "policy", "epochs", (json_int_t)count_at(in, "num_iterations", 1)));
    notes_add(in->notes, "rewards by functions take no time and no memory here; a reward model is not planned");
    return document(in, "TRL", each * steps, count_at(in, "num_generations", 8), prompt, response);
}

/* ---- verl ---- */

#define ROLLOUT "actor_rollout_ref.rollout."
#define ACTOR   "actor_rollout_ref.actor."

/* What the file asks for and no phase plan has. */
static int verl_refuses(const struct importing *in)
{
    const char *estimator = text_at(in, "algorithm.adv_estimator", "gae"), *engine = text_at(in, ROLLOUT "name", "vllm");

    if (!strcmp(estimator, "gae"))
        return fail("%s: algorithm.adv_estimator: gae%s: a critic, a model with a head of one value, is not planned: grpo, rloo, remax and reinforce_plus_plus "
                    "have none", in->f->path, form_value(in->f->doc, "algorithm.adv_estimator") ? "" : " (usual)");
    if (flag_at(in, "reward_model.enable", false))
        return fail("%s: reward_model.enable: a model with a head of one value is not planned: rewards by functions are", in->f->path);
    if (strcmp(engine, "vllm") != 0 && strcmp(engine, "sglang") != 0)
        return fail("%s: " ROLLOUT "name: %.40s: vllm and sglang are planned", in->f->path, engine);
    if (count_at(in, ROLLOUT "pipeline_model_parallel_size", 1) > 1 || count_at(in, ROLLOUT "data_parallel_size", 1) > 1 ||
        count_at(in, ROLLOUT "expert_parallel_size", 1) > 1)
        return fail("%s: " ROLLOUT "*_parallel_size: an engine with pipeline, data or expert parallelism is not planned: tensor parallelism is", in->f->path);
    return 0;
}

static void verl_engine(struct importing *in)
{
    bool vllm = !strcmp(text_at(in, ROLLOUT "name", "vllm"), "vllm"), sleeps = flag_at(in, ROLLOUT "free_cache_engine", true);

    add_role(in, "engine", json_pack("{s:s, s:I, s:f, s:I, s:I, s:b, s:i}", "engine", vllm ? "vllm" : "sglang", "tensor",
                                     (json_int_t)count_at(in, ROLLOUT "tensor_model_parallel_size", 2), vllm ? "gpu_memory_utilization" : "mem_fraction_static",
                                     number_at(in, ROLLOUT "gpu_memory_utilization", 0.5), "max_num_seqs", (json_int_t)count_at(in, ROLLOUT "max_num_seqs", 1024),
                                     "max_num_batched_tokens", (json_int_t)count_at(in, ROLLOUT "max_num_batched_tokens", 8192), "enforce_eager",
                                     flag_at(in, ROLLOUT "enforce_eager", false), "sleep", !sleeps ? 0 : vllm ? 1 : 2));
    if (sleeps && vllm)
        notes_add(in->notes, "vLLM sleeps at level 1, with its weights in host memory; newer verl discards them (level 2)");
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

static int64_t verl_micro(const struct importing *in, const char *whose)
{
    char each[100], all[100], dynamic[100];
    int64_t world = in->actor.cluster.world_size;

    snprintf(each, sizeof each, "actor_rollout_ref.%s.log_prob_micro_batch_size_per_gpu", whose);
    snprintf(all, sizeof all, "actor_rollout_ref.%s.log_prob_micro_batch_size", whose);
    snprintf(dynamic, sizeof dynamic, "actor_rollout_ref.%s.log_prob_max_token_len_per_gpu", whose);
    int64_t fit = count_at(in, dynamic, 16384) / in->actor.seq, n = count_at(in, each, count_at(in, all, 0) / world);
    if (n > 0 && !flag_at(in, ACTOR "use_dynamic_bsz", false))
        return n;
    return flag_at(in, ACTOR "use_dynamic_bsz", false) && fit > 0 ? fit : in->actor.micro_batch;
}

static void verl_phases(struct importing *in, bool refers, bool adapts)
{
    int64_t bucket = count_at(in, ROLLOUT "update_weights_bucket_megabytes", 512) << 20;

    add_phase(in, json_pack("{s:s, s:s, s:s, s:I}", "name", "weights", "hand_over", "actor", "to", "engine", "bucket_bytes", (json_int_t)bucket));
    add_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "log-probs", "forward", "actor", "micro_batch", (json_int_t)verl_micro(in, "rollout")));
    if (refers)
        add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "reference", "forward", adapts ? "actor" : "reference", "micro_batch", (json_int_t)verl_micro(in, "ref")));
    add_phase(in, json_pack("{s:s, s:s, s:I}", "name", "update", "update", "actor", "epochs", (json_int_t)count_at(in, ACTOR "ppo_epochs", 1)));
}

static json_t *verl(struct importing *in)
{
    json_t *response = NULL;
    bool params = flag_at(in, ACTOR "fsdp_config.param_offload", false), states = flag_at(in, ACTOR "fsdp_config.optimizer_offload", false);
    bool refers = flag_at(in, ACTOR "use_kl_loss", false) || flag_at(in, "algorithm.use_kl_in_reward", false);
    int64_t prompt = count_at(in, "data.max_prompt_length", 512), longest = count_at(in, "data.max_response_length", 512), n = count_at(in, ROLLOUT "n", 1);

    if (verl_refuses(in) < 0 || read_actor(in, in->f->doc) < 0 || read_response(in, longest, &response) < 0)
        return NULL;
    bool adapts = in->actor.model.trainable < in->actor.model.params;
    add_role(in, "actor", json_pack("{s:o, s:s, s:b}", "train", plan_to_json(&in->actor), "between", states && params ? "host" : states ? "states on host" : params ? "weights on host" : "device",
                                    "empties_cache", 1));
    verl_engine(in);
    if (refers && !adapts)
        verl_reference(in);
    if (flag_at(in, ROLLOUT "multi_turn.enable", false))
        notes_add(in->notes, ROLLOUT "multi_turn.enable: responses are planned as written at once: the time of tools between turns is not in it");
    verl_phases(in, refers, adapts);
    return document(in, "verl", count_at(in, "data.train_batch_size", 1024) * n, n, prompt, response);
}

json_t *phases_import(const struct phases_asked *a, const struct form_file *f, struct notes *notes)
{
    struct importing in = { .a = a, .f = f, .notes = notes, .roles = json_object(), .phases = json_array() };
    json_t *doc = form_of_quietly(f) == &form_verl ? verl(&in) : recipe_trl_trainer(f->doc) == TRL_DPO ? trl_dpo(&in) : trl_grpo(&in);

    json_decref(in.roles);
    json_decref(in.phases);
    plan_free(&in.actor);
    return doc;
}
