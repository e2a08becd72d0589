/* form_verl_beside.c -- what decides whether a file of verl's is its PPO at all, values that verl stops at, and what a file asks for beside the update.
 *
 * Programs, names and kinds of values: verl of January 2026 (verl/trainer/config, trainer/ppo/utils.py, workers/config/actor.py) and verl-recipe of August 2026. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/form/form_verl.h"

#define ACTOR VERL_ACTOR
#define FSDP ACTOR "fsdp_config."
#define REF "actor_rollout_ref.ref."
#define ROLLOUT "actor_rollout_ref.rollout."
#define CORRECTION "algorithm.rollout_correction."

/* ---- which program ---- */

static bool ends(const char *word, const char *with)
{
    size_t n = strlen(word), m = strlen(with);

    return n >= m && !strcmp(word + n - m, with) && (n == m || word[n - m - 1] == '.' || word[n - m - 1] == '/');
}

/* verl-recipe's and verl.experimental's that make verl's own workers (fsdp_workers.py, megatron_workers.py, engine_workers.py), or children of them that
 * leave the update as it is: sppo and flowrl change its loss by less than a row of the logits. */
static bool keeps_the_actor(const char *program)
{
    static const char *const kept[] = { "main_ppo", "main_dapo", "main_entropy", "spo_main_ppo", "main_dynamo", "main_atropos", "main_prime", "main_sppo", "main_flowrl",
                                        "main_rep_exp", "main_ppo_format", "gvpo_main_ppo", "fully_async_main", "reward_queue.main", "async_flow.grpo_main" };

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (ends(program, kept[i]))
            return !strstr(program, "vla.main_ppo");
    return false;
}

static void program_of(const struct form_file *f, char name[200])
{
    const char *word = json_string_value(json_array_get(f->words, 0));
    size_t n = word ? strlen(word) : 0;

    snprintf(name, 200, "%.*s", (int)(n > 3 && !strcmp(word + n - 3, ".py") ? n - 3 : n), word ? word : "");
}

/* Of verl itself and of its recipes, or called a main program: another update is there for a reason (spin keeps two graphs of a whole iteration's pairs). */
static bool is_verls_own(const char *program)
{
    const char *slash = strrchr(program, '/'), *base = slash ? slash + 1 : program, *dot = strrchr(base, '.');

    return !strncmp(program, "recipe.", 7) || !strncmp(program, "verl.", 5) || strstr(program, "recipe/") || !strncmp(dot ? dot + 1 : base, "main_", 5);
}

int verl_check_program(const struct form_file *f)
{
    char program[200];

    program_of(f, program);
    if (!*program || keeps_the_actor(program) || !is_verls_own(program))
        return 0;
    return fail("%s: %.120s: of verl's programs main_ppo is planned, and those that keep its actor (main_dapo, main_prime, main_entropy, fully_async_main and their "
                "like): this one has an update of its own", f->path, program);
}

static void note_program(struct form_reading *r)
{
    char program[200];

    program_of(r->file, program);
    if (*program && !strchr(program, '=') && !keeps_the_actor(program))
        notes_add(r->notes, "%.100s: a program of its own: planned with the actor and the update of verl's main_ppo", json_string_value(json_array_get(r->file->words, 0)));
}

/* ---- a release of the past ---- */

/* Left verl with 9db52329f on 17 February 2025, before 25b0f2262 of 17 April made entropy_coeff 0; n_agent is of Search-R1, which has verl of that month in it. */
const char *verl_first_releases_key(const struct form_file *f)
{
    static const char *const keys[] = { FSDP "grad_offload", "critic.model.fsdp_config.grad_offload", ROLLOUT "n_agent" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (form_value(f->doc, keys[i]))
            return keys[i];
    return NULL;
}

/* Of those releases (trainer/config/ppo_trainer.yaml): false, and so is enable_gradient_checkpointing. */
bool verl_true_of_late(struct form_reading *r, const char *path) { return form_true(r, path, !verl_first_releases_key(r->file)); }

bool verl_has_entropy_always(struct form_reading *r)
{
    const char *key = verl_first_releases_key(r->file);

    if (!key)
        return false;
    if (!verl_true_of_late(r, "actor_rollout_ref.model.use_remove_padding"))
        form_fail(r, "%s: a key of verl before 17 February 2025, which has the entropy in every loss (entropy_coeff 0.001) and pads samples unless "
                  "actor_rollout_ref.model.use_remove_padding is True: an entropy of padded samples is not planned", key);
    notes_add(r->notes, "%s: a key of verl before 17 February 2025: planned as it was: the entropy is in every loss (entropy_coeff 0.001 where none is given), and "
              "recomputing of blocks is false where it is not given", key);
    return true;
}

/* A name that is deprecated since February 2025 and still taken: which release the file is of cannot be told by it. */
static void note_batch_of_all(struct form_reading *r, const struct plan *p, const struct verl_batch *b)
{
    static const char old[] = ACTOR "ppo_micro_batch_size";

    if (!verl_first_releases_key(r->file) && form_value(r->file->doc, old) && !form_value(r->file->doc, ACTOR "entropy_coeff") && !verl_is_megatron(r->file))
        notes_add(r->notes, "%s: the older name: before April 2025 verl had the entropy in every loss (entropy_coeff 0.001), whose gradient keeps a second copy of the "
                  "logits, %.3g GB here: planned without it, as verl is since: give entropy_coeff=0.001 for such a release", old,
                  2 * (double)b->micro * (double)b->seq * (double)p->model.vocab / 1e9);
}

/* ---- values ---- */

enum kind { FLAG, COUNT, WHOLE, NUMBER };
static const struct { const char *path; enum kind kind; } values[] = {
    { ACTOR "ppo_epochs", COUNT }, { ACTOR "use_kl_loss", FLAG }, { ACTOR "kl_loss_coef", NUMBER }, { ACTOR "shuffle", FLAG }, { ACTOR "clip_ratio", NUMBER },
    { ACTOR "clip_ratio_low", NUMBER }, { ACTOR "clip_ratio_high", NUMBER }, { ACTOR "clip_ratio_c", NUMBER }, { ACTOR "optim.lr", NUMBER },
    { ACTOR "optim.weight_decay", NUMBER }, { ACTOR "optim.lr_warmup_steps", WHOLE }, { ACTOR "optim.lr_warmup_steps_ratio", NUMBER },
    { FSDP "param_offload", FLAG }, { FSDP "optimizer_offload", FLAG }, { FSDP "grad_offload", FLAG }, { ACTOR "use_torch_compile", FLAG },
    { ACTOR "entropy_from_logits_with_chunking", FLAG }, { ACTOR "entropy_checkpointing", FLAG }, { ACTOR "entropy_coeff", NUMBER }, { ACTOR "calculate_entropy", FLAG },
    { ACTOR "megatron.param_offload", FLAG }, { ACTOR "megatron.grad_offload", FLAG }, { ACTOR "megatron.optimizer_offload", FLAG },
    { REF "rollout_n", COUNT }, { REF "use_torch_compile", FLAG }, { REF "log_prob_micro_batch_size", COUNT }, { REF "log_prob_micro_batch_size_per_gpu", COUNT },
    { REF "log_prob_use_dynamic_bsz", FLAG }, { REF "log_prob_max_token_len_per_gpu", COUNT }, { REF "ulysses_sequence_parallel_size", COUNT },
    { REF "entropy_from_logits_with_chunking", FLAG }, { REF "entropy_checkpointing", FLAG }, { REF "load_weight", FLAG },
    { REF "fsdp_config.param_offload", FLAG }, { REF "fsdp_config.optimizer_offload", FLAG }, { REF "fsdp_config.offload_policy", FLAG },
    { REF "fsdp_config.reshard_after_forward", FLAG }, { REF "fsdp_config.fsdp_size", WHOLE }, { REF "fsdp_config.forward_prefetch", FLAG },
    { REF "fsdp_config.use_orig_params", FLAG }, { REF "fsdp_config.ulysses_sequence_parallel_size", COUNT }, { REF "fsdp_config.wrap_policy.min_num_params", WHOLE },
    { REF "megatron.param_offload", FLAG }, { REF "megatron.grad_offload", FLAG }, { REF "megatron.optimizer_offload", FLAG },
    { REF "megatron.tensor_model_parallel_size", COUNT }, { REF "megatron.pipeline_model_parallel_size", COUNT },
    { REF "megatron.virtual_pipeline_model_parallel_size", COUNT }, { REF "megatron.context_parallel_size", COUNT }, { REF "megatron.expert_model_parallel_size", COUNT },
    { REF "megatron.expert_tensor_parallel_size", COUNT }, { REF "megatron.sequence_parallel", FLAG }, { REF "megatron.use_distributed_optimizer", FLAG },
    { REF "megatron.use_dist_checkpointing", FLAG }, { REF "megatron.use_mbridge", FLAG },
    { ROLLOUT "gpu_memory_utilization", NUMBER }, { ROLLOUT "log_prob_micro_batch_size", COUNT }, { ROLLOUT "log_prob_micro_batch_size_per_gpu", COUNT },
    { ROLLOUT "log_prob_use_dynamic_bsz", FLAG }, { ROLLOUT "log_prob_max_token_len_per_gpu", COUNT }, { ROLLOUT "enforce_eager", FLAG },
    { ROLLOUT "free_cache_engine", FLAG }, { ROLLOUT "enable_chunked_prefill", FLAG }, { ROLLOUT "calculate_log_probs", FLAG }, { ROLLOUT "max_num_seqs", COUNT },
    { ROLLOUT "max_num_batched_tokens", COUNT }, { ROLLOUT "max_model_len", COUNT }, { ROLLOUT "temperature", NUMBER }, { ROLLOUT "top_p", NUMBER }, { ROLLOUT "top_k", WHOLE },
    { "algorithm.gamma", NUMBER }, { "algorithm.lam", NUMBER }, { "algorithm.norm_adv_by_std_in_grpo", FLAG }, { "algorithm.use_kl_in_reward", FLAG },
    { "algorithm.kl_ctrl.kl_coef", NUMBER }, { "algorithm.kl_ctrl.horizon", COUNT }, { "algorithm.kl_ctrl.target_kl", NUMBER }, { "algorithm.use_pf_ppo", FLAG },
    { "algorithm.pf_ppo.weight_pow", NUMBER }, { "algorithm.filter_groups.enable", FLAG }, { "algorithm.filter_groups.max_num_gen_batches", WHOLE },
    { CORRECTION "bypass_mode", FLAG }, { CORRECTION "rollout_is_threshold", NUMBER }, { CORRECTION "rollout_is_batch_normalize", FLAG },
    { "critic.enable", FLAG }, { "critic.ppo_epochs", COUNT }, { "critic.ppo_micro_batch_size_per_gpu", COUNT }, { "critic.ppo_micro_batch_size", COUNT },
    { "critic.model.fsdp_config.grad_offload", FLAG },
    { "data.filter_overlong_prompts", FLAG }, { "data.shuffle", FLAG }, { "data.return_raw_chat", FLAG },
    { "trainer.critic_warmup", WHOLE }, { "trainer.save_freq", WHOLE }, { "trainer.test_freq", WHOLE }, { "trainer.total_epochs", COUNT },
    { "trainer.total_training_steps", COUNT }, { "trainer.val_before_train", FLAG }, { "trainer.balance_batch", FLAG },
};

/* hydra's nothing, or what a variable says that is set where the script runs. */
static bool is_open(const json_t *v)
{
    const char *s = json_string_value(v);

    return s && (!*s || strchr(s, '$') || !strcmp(s, "null") || !strcmp(s, "None") || !strcmp(s, "~"));
}

/* trainer.test_freq=False: Python takes it for 0. */
static bool is_false(const json_t *v)
{
    const char *s = json_string_value(v);

    return json_is_false(v) || (s && !strcasecmp(s, "false"));
}

static bool is_bit(const json_t *v) { return json_is_integer(v) && json_integer_value(v) >> 1 == 0; }

static void check_values(struct form_reading *r)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const char *path = values[i].path;
        const json_t *v = form_value(r->file->doc, path);
        if (!v || is_open(v) || (values[i].kind == WHOLE && is_false(v)))
            continue;
        if (values[i].kind == FLAG && !is_bit(v))
            form_true(r, path, false);
        if (values[i].kind == COUNT)
            form_count(r, path, 1);
        else if (values[i].kind == WHOLE)
            form_integer(r, path, 0);
        else if (values[i].kind == NUMBER)
            form_number(r, path, 0);
    }
}

/* trainer/ppo/core_algos.py (get_kl_controller(), kl_penalty_forward()), trainer/ppo/rollout_corr_helper.py, workers/config/actor.py, utils/dataset/rl_dataset.py. */
static void check_words(struct form_reading *r)
{
    static const char *const control[] = { "fixed", "adaptive", NULL }, *const truncation[] = { "error", "left", "right", "middle", NULL };
    static const char *const mode[] = { "async", "sync", NULL };
    static const char *const penalty[] = { "kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "full", "kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+", NULL };
    static const char *const agg[] = { "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm", NULL };
    static const struct { const char *path; const char *const *words; } of[] = {
        { "algorithm.kl_ctrl.type", control }, { "algorithm.kl_penalty", penalty }, { ACTOR "kl_loss_type", penalty }, { ACTOR "loss_agg_mode", agg },
        { "data.truncation", truncation }, { ROLLOUT "mode", mode },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!is_open(form_value(r->file->doc, of[i].path)))
            form_word(r, of[i].path, of[i].words, 0);
}

/* core_algos.py: AdvantageEstimator, a critic for gae alone. */
static void note_estimator(struct form_reading *r)
{
    static const char own[] = " gae grpo reinforce_plus_plus reinforce_plus_plus_baseline remax rloo opo grpo_passk gpg rloo_vectorized grpo_vectorized "
                              "optimal_token_baseline tir_optimal_token_baseline ";
    const char *of = form_text(r, "algorithm.adv_estimator", "gae");
    char word[80];

    snprintf(word, sizeof word, " %.70s ", of);
    if (!strstr(own, word) && !strchr(of, '$'))
        notes_add(r->notes, "algorithm.adv_estimator: %.60s is none of verl's own: planned as one without a critic", of);
}

/* workers/config/actor.py (__post_init__, validate()), utils/config.py (validate_config()), protocol.py: what an iteration has is all that a step can take. */
int64_t verl_prompts_of_a_step(struct form_reading *r, int64_t ranks, int64_t micro)
{
    static const char train[] = "data.train_batch_size", mini[] = ACTOR "ppo_mini_batch_size", whole[] = ACTOR "ppo_micro_batch_size";
    int64_t of = form_count(r, mini, 256), n = form_count(r, ROLLOUT "n", 1), all = is_open(form_value(r->file->doc, train)) ? 0 : form_integer(r, train, 1024);
    int64_t micro_of_all = form_count(r, whole, 0);

    if (form_true(r, "rllm.async_training.enable", false))             /* rllm's prompts come one by one: train_batch_size is 1 */
        return of;
    if (form_true(r, ACTOR "use_dynamic_bsz", false)) {
        if (all > 0 && all < of)
            notes_add(r->notes, "%s: %lld: an iteration has no more prompts, so a step takes them all: ppo_mini_batch_size, %lld, is never reached", train, (long long)all,
                      (long long)of);
        return all > 0 && all < of ? all : of;
    }
    if (all > 0 && all < of)
        form_fail(r, "%s: %lld: verl stops where it is below actor.ppo_mini_batch_size, %lld", train, (long long)all, (long long)of);
    else if (micro_of_all && form_value(r->file->doc, ACTOR "ppo_micro_batch_size_per_gpu"))
        form_fail(r, "%s: verl stops where ppo_micro_batch_size_per_gpu is given, too", whole);
    else if (micro_of_all && of % micro_of_all)
        form_fail(r, "%s: verl stops where %lld, ppo_mini_batch_size, does not divide by it", whole, (long long)of);
    else if (all > 0 && ranks > 0 && micro > 0 && all * n % (ranks * micro))
        form_fail(r, "%s: %lld x %lld responses: verl stops where they do not divide by %lld, which its ranks take at least", train, (long long)all, (long long)n,
                  (long long)(ranks * micro));
    return of;
}

/* ---- beside the update ---- */

/* trainer/ppo/utils.py: need_critic(). */
static bool has_critic(struct form_reading *r)
{
    const json_t *enable = form_value(r->file->doc, "critic.enable");

    return enable && !is_open(enable) ? form_true(r, "critic.enable", false) : !strcmp(form_text(r, "algorithm.adv_estimator", "gae"), "gae");
}

static void note_critic(struct form_reading *r)
{
    bool named = form_value(r->file->doc, "critic.model.path") != NULL;

    if (has_critic(r))
        notes_add(r->notes, "%s: the critic's update is a phase of its own; meanwhile FSDP keeps 12 bytes a parameter of it on the GPUs together, but for what "
                  "param_offload and optimizer_offload of critic.model.fsdp_config send to the host: dpxplan phases counts it",
                  named ? "critic.model.path is not in the plan" : "algorithm.adv_estimator: gae (usual) has a critic, which is not in the plan");
}

/* The pass of log-probabilities has the entropy of every response (fsdp_workers.py: compute_log_prob(), calculate_entropy), in one compiled kernel unless
 * these say otherwise (torch_functional.py: entropy_from_logits() keeps a softmax and its product with the logits; with chunking 2048 tokens at once, in fp32). */
static void note_entropy(struct form_reading *r, const struct plan *p, const struct verl_batch *b)
{
    bool chunks = form_true(r, ACTOR "entropy_from_logits_with_chunking", false), compiled = form_true(r, ACTOR "use_torch_compile", true);
    int64_t per = form_value(r->file->doc, ROLLOUT "log_prob_micro_batch_size_per_gpu") && !is_open(form_value(r->file->doc, ROLLOUT "log_prob_micro_batch_size_per_gpu"))
                ? form_count(r, ROLLOUT "log_prob_micro_batch_size_per_gpu", 1) : b->micro;
    double logits = 2 * (double)per * (double)b->seq * (double)p->model.vocab / 1e9;

    if (verl_fuses(r))
        return;
    if (chunks)
        notes_add(r->notes, ACTOR "entropy_from_logits_with_chunking: of the pass of log-probabilities, which is not in the plan: the entropy of 2048 tokens at a time, in fp32");
    else if (!compiled)
        notes_add(r->notes, ACTOR "use_torch_compile: false: in the pass of log-probabilities, which is not in the plan, the entropy's softmax and its product with the "
                  "logits are tensors of their own, %.3g GB each", logits);
}

void verl_read_beside(struct form_reading *r, const struct plan *p, const struct verl_batch *b)
{
    int64_t epochs = form_count(r, ACTOR "ppo_epochs", 1);
    static const char lora[] = "actor_rollout_ref.model.lora.rank";

    check_values(r);
    if (!is_open(form_value(r->file->doc, ROLLOUT "gpu_memory_utilization")) && form_number(r, ROLLOUT "gpu_memory_utilization", 0.5) > 1)
        form_fail(r, ROLLOUT "gpu_memory_utilization: a share of the memory, up to 1");
    check_words(r);
    note_estimator(r);
    note_program(r);
    note_batch_of_all(r, p, b);
    note_critic(r);
    if (epochs > 1)
        notes_add(r->notes, ACTOR "ppo_epochs: %lld: each sample is trained on as often: an iteration has %lld times the steps, of which the plan is one", (long long)epochs,
                  (long long)epochs);
    if (verl_is_megatron(r->file))
        return;
    note_entropy(r, p, b);
    if (form_value(r->file->doc, lora) && form_number(r, lora, 0) > 0 && form_integer(r, "actor_rollout_ref.model.lora_rank", 0) < 1)
        notes_add(r->notes, "%s: of Megatron-LM's actor alone: FSDP's reads model.lora_rank, which is not given: there are no adapters and every weight trains", lora);
}
