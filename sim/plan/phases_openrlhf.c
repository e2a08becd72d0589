/* phases_openrlhf.c -- phase plans of OpenRLHF's PPO, GRPO and their like (openrlhf.cli.train_ppo_ray, 0.11.2; options without sections: 0.8.11).
 *
 * Every model is a process of its own on each GPU (trainer/ray/launcher.py: BaseModelActor): actor and critic under DeepSpeed's config of training, the
 * reference and the reward model under get_ds_eval_config(), stage 3 where the actor has it and else stage 0, a whole copy in 16 bits.  A
 * critic is there with the estimator gae alone; without a model of its own it has the reward model's, or where rewards come from elsewhere the
 * actor's (cli/train_ppo_ray.py).  Both have a head of one number, without a bias (models/model.py): the plan's critic counts one.
 *
 * With --train.colocate_all all of it shares the GPUs, and caches are emptied behind each forward (experience_maker.py: _dispatch_forward()) and
 * around fit().  Without it the engines have GPUs of their own; actor and reference share theirs with --train.colocate_actor_ref, critic and
 * reward model other ones with --train.colocate_critic_reward, and each else has its own num_nodes times num_gpus_per_node.  What is on other GPUs
 * runs at the same time, forwards (make_experience()) and updates (ppo_train()); where two share GPUs caches are emptied between them.  --ds.enable_sleep moves states to host memory between updates, of the critic first (ppo_trainer.py:
 * ppo_train()); --vllm.enable_sleep is level 1 (vllm_engine.py: sleep()).  Weights are handed over a parameter at a time. */
#include "sim/plan/phases_import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "sim/plan/named.h"

/* Options with their sections, and those before. */
static const char *const names[][2] = {
    { "actor.model_name_or_path", "pretrain" }, { "critic.model_name_or_path", "critic_pretrain" }, { "reward.model_name_or_path", "reward_pretrain" },
    { "reward.remote_url", "remote_rm_url" }, { "train.agent_func_path", "agent_func_path" }, { "actor.num_nodes", "actor_num_nodes" },
    { "actor.num_gpus_per_node", "actor_num_gpus_per_node" }, { "vllm.num_engines", "vllm_num_engines" },
    { "vllm.tensor_parallel_size", "vllm_tensor_parallel_size" }, { "vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization" },
    { "vllm.enable_sleep", "vllm_enable_sleep" }, { "vllm.enforce_eager", "enforce_eager" }, { "ds.enable_sleep", "deepspeed_enable_sleep" },
    { "train.colocate_all", "colocate_all_models" }, { "train.colocate_actor_ref", "colocate_actor_ref" }, { "train.async_enable", "async_train" },
    { "rollout.batch_size", "rollout_batch_size" }, { "rollout.micro_batch_size", "micro_rollout_batch_size" },
    { "rollout.n_samples_per_prompt", "n_samples_per_prompt" }, { "rollout.max_new_tokens", "generate_max_len" }, { "data.max_len", "max_len" },
    { "train.batch_size", "train_batch_size" }, { "train.micro_batch_size", "micro_train_batch_size" }, { "train.max_epochs", "max_epochs" },
    { "train.dynamic_batch_enable", "use_dynamic_batch" }, { "train.max_tokens_per_gpu", "train_max_tokens_per_gpu" },
    { "rollout.max_tokens_per_gpu", "rollout_max_tokens_per_gpu" }, { "algo.advantage.estimator", "advantage_estimator" },
    { "algo.kl.init_coef", "init_kl_coef" }, { "actor.gradient_checkpointing_enable", "gradient_checkpointing" }, { "actor.max_norm", "max_norm" },
    { "actor.optim", "optim" }, { "critic.optim", NULL }, { NULL, "optimizer" }, { "ref.offload", "ref_reward_offload" }, { "reward.offload", "ref_reward_offload" },
    { "ds.use_liger_kernel", "use_liger_kernel" }, { "ds.deepcompile", "deepcompile" }, { "ds.ring_attn_size", "ring_attn_size" },
    { "ds.tensor_parallel_size", "ds_tensor_parallel_size" }, { "train.enable_ema", "enable_ema" },
    { "algo.dynamic_filtering_enable", "dynamic_filtering" }, { "rollout.vllm_generate_batch_size", "vllm_generate_batch_size" },
    { "data.max_images_per_prompt", NULL }, { NULL, "prompt_max_len" }, { NULL, "torch_compile" }, { "ds.zero_stage", "zero_stage" },
    { "train.colocate_critic_reward", "colocate_critic_reward" }, { "critic.num_nodes", "critic_num_nodes" }, { "critic.num_gpus_per_node", "critic_num_gpus_per_node" },
    { "reward.num_nodes", "reward_num_nodes" }, { "reward.num_gpus_per_node", "reward_num_gpus_per_node" }, { "ref.num_nodes", "ref_num_nodes" },
    { "ref.num_gpus_per_node", "ref_num_gpus_per_node" },
};
enum { ACTOR, CRITIC, REWARD, REMOTE, AGENT, NODES, GPUS, ENGINES, TENSOR, SHARE, SLEEPS, EAGER, DS_SLEEPS, ALL, WITH_REF, ASYNC, ROLLOUT, ROLLOUT_MICRO, SAMPLES, LONGEST,
       LENGTH, BATCH, MICRO, EPOCHS, DYNAMIC, TOKENS, ROLLOUT_TOKENS, ESTIMATOR, KL, AGAIN, CLIP, OPTIM, CRITIC_OPTIM, FORKS_OPTIM, REF_OFFLOAD, REWARD_OFFLOAD, LIGER, COMPILES, RING,
       TP, EMA, FILTERS, GENERATES, IMAGES, PROMPT, GRAPHS, STAGE, WITH_REWARD, CRITIC_NODES, CRITIC_GPUS, REWARD_NODES, REWARD_GPUS, REF_NODES, REF_GPUS };

/* Of DeepSpeed: read by form_openrlhf, under these names. */
static const char *const of_deepspeed[] = { "zero_stage", "param_dtype", "adam_offload", "overlap_comm", "zpg", "grad_accum_dtype", "lora_rank", "lora_alpha", "target_modules",
                                            "lora_dropout", "load_in_4bit", "bf16", "attn_implementation" };

/* The spelling that the file has. */
static const char *path_of(const struct importing *in, int which)
{
    const char *new = names[which][0], *old = names[which][1];

    return !new || (old && !form_value(in->f->doc, new) && form_value(in->f->doc, old)) ? old : new;
}

static int64_t count(struct importing *in, int which, int64_t usual) { return import_count(in, path_of(in, which), 0, usual); }
static bool flag(struct importing *in, int which) { return import_flag(in, path_of(in, which), false); }
static const char *text(struct importing *in, int which) { return import_text(in, path_of(in, which), NULL); }
/* Options without sections: before 0.10, which has other usual batches. */
static bool is_old(const struct importing *in) { return form_value(in->f->doc, "pretrain") != NULL; }

/* ---- who is there ---- */

struct cast { const char *critic, *reward; bool refers, together, apart; int64_t gpus; json_t *places; };

static int find_cast(struct importing *in, struct cast *c)
{
    const char *estimator = import_text(in, path_of(in, ESTIMATOR), "gae"), *actor = text(in, ACTOR);
    bool remote = form_value(in->f->doc, path_of(in, REMOTE)) || form_value(in->f->doc, path_of(in, AGENT));

    c->reward = remote ? NULL : text(in, REWARD);
    c->critic = strcmp(estimator, "gae") != 0 ? NULL : text(in, CRITIC) ? text(in, CRITIC) : c->reward ? c->reward : actor;
    c->refers = import_number(in, path_of(in, KL), 0.01) > 0;
    c->apart = !flag(in, ALL) || flag(in, ASYNC);
    c->together = flag(in, ALL);
    c->gpus = count(in, ENGINES, 0) * count(in, TENSOR, 1);
    if (!actor && !in->a->plan.model && !in->a->plan.model_doc)
        return fail("%s: %s: the actor's model is not named: --model says it", in->f->path, names[ACTOR][0]);
    if (c->reward && strchr(c->reward, ','))
        return fail("%s: %s: several reward models are not planned", in->f->path, path_of(in, REWARD));
    return 0;
}

static bool is_adam(const char *name) { return name && (!strcasecmp(name, "adam") || !strcasecmp(name, "adamw")); }

/* Where models share GPUs, train() asserts that they have as many; a place of its own takes what it says. */
static int check_same(struct importing *in, int nodes, int each, int other_nodes, int other_each)
{
    if (count(in, nodes, 1) == count(in, other_nodes, 1) && count(in, each, 8) == count(in, other_each, 8))
        return 0;
    return fail("%s: %s: %" PRId64 " x %" PRId64 " GPUs beside %" PRId64 " x %" PRId64 " of %s, which share them: OpenRLHF stops", in->f->path, path_of(in, other_each),
                count(in, other_nodes, 1), count(in, other_each, 8), count(in, nodes, 1), count(in, each, 8), path_of(in, each));
}

static int check_places(struct importing *in, const struct cast *c)
{
    int64_t gpus = count(in, NODES, 1) * count(in, GPUS, 8);

    if (!c->apart && c->gpus != gpus)
        return fail("%s: %s: %" PRId64 " GPUs of engines (x %" PRId64 ") are not the actor's %" PRId64 ", which they share: OpenRLHF stops", in->f->path, path_of(in, ENGINES), c->gpus,
                    count(in, TENSOR, 1), gpus);
    if (c->refers && (c->together || flag(in, WITH_REF)) && check_same(in, NODES, GPUS, REF_NODES, REF_GPUS) < 0)
        return -1;
    return c->critic && flag(in, WITH_REWARD) ? check_same(in, CRITIC_NODES, CRITIC_GPUS, REWARD_NODES, REWARD_GPUS) : 0;
}

/* What its argparse and the lines behind it stop at. */
static int check_choices(struct importing *in, const struct cast *c)
{
    static const char *const estimators[] = { "gae", "reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo" };
    const char *estimator = import_text(in, path_of(in, ESTIMATOR), "gae");
    size_t i = 0, n = sizeof estimators / sizeof *estimators;
    int64_t samples = count(in, SAMPLES, 1), gpus = count(in, NODES, 1) * count(in, GPUS, 8);

    if (!estimator)
        return -1;
    while (i < n && strcmp(estimators[i], estimator) != 0)
        i++;
    if (i == n)
        return fail("%s: %s: \"%.40s\" is none of OpenRLHF's: gae, reinforce, rloo, reinforce_baseline, group_norm, dr_grpo", in->f->path, path_of(in, ESTIMATOR), estimator);
    if (i > 1 && samples < 2)
        return fail("%s: %s: %s compares the responses to a prompt: OpenRLHF stops at one", in->f->path, path_of(in, SAMPLES), estimator);
    if (!is_old(in) && samples * count(in, ROLLOUT, 1024) / count(in, ROLLOUT_MICRO, 1) < gpus)
        return fail("%s: %s: fewer micro-steps than the actor's %" PRId64 " GPUs: OpenRLHF stops", in->f->path, path_of(in, ROLLOUT_MICRO), gpus);
    if (flag(in, ASYNC) && flag(in, SLEEPS) && c->together)
        return fail("%s: %s: OpenRLHF stops beside %s", in->f->path, path_of(in, SLEEPS), path_of(in, ASYNC));
    return 0;
}

static int refuses(struct importing *in, const struct cast *c)
{
    static const struct { int which; const char *why; } never[] = {
        { LIGER, "Liger-Kernel's layers are not planned of OpenRLHF" }, { COMPILES, "DeepCompile's passes are not planned" },
        { GRAPHS, "compiled models are not planned of OpenRLHF" },
        { EMA, "a moving average of the weights is not planned" },
        { FILTERS, "how many batches are generated until enough groups differ is not known beforehand" },
    };

    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (flag(in, never[i].which))
            return fail("%s: %s: %s", in->f->path, path_of(in, never[i].which), never[i].why);
    if (count(in, RING, 1) > 1 || count(in, TP, 1) > 1)
        return fail("%s: %s: ranks that share a sample are not planned of OpenRLHF", in->f->path, path_of(in, count(in, RING, 1) > 1 ? RING : TP));
    if (count(in, IMAGES, 0) > 0)
        return fail("%s: %s: training on pictures is not planned", in->f->path, path_of(in, IMAGES));
    for (int i = OPTIM; i <= FORKS_OPTIM; i++)
        if (form_value(in->f->doc, path_of(in, i)) && !is_adam(text(in, i)))
            return fail("%s: %s: adam is planned of OpenRLHF's PPO", in->f->path, path_of(in, i));
    if (c->gpus == 0)
        return fail("%s: %s: not given: generation without vLLM is not planned", in->f->path, names[ENGINES][0]);
    if (form_value(in->f->doc, path_of(in, GENERATES)) && count(in, GENERATES, 1) != count(in, ROLLOUT, 1024))
        return fail("%s: %s: more prompts are generated than trained on, which is not planned", in->f->path, path_of(in, GENERATES));
    if (check_choices(in, c) < 0 || check_places(in, c) < 0)
        return -1;
    if (c->together && c->critic && !flag(in, DS_SLEEPS))
        return fail("%s: %s: without it actor and critic train at the same time on the same GPUs, which is not planned", in->f->path, names[DS_SLEEPS][0]);
    return in->failed ? -1 : 0;
}

/* ---- plans ---- */

static int64_t ranks_of(const struct cluster *c) { return c->world_size; }

/* What form_openrlhf reads of a supervised training: DeepSpeed's options, and batch and lengths of these. */
static json_t *as_sft(struct importing *in, const struct cluster *c, int64_t seq, bool adapts)
{
    json_t *doc = json_object(), *ds = json_deep_copy(json_object_get(in->f->doc, "ds"));
    int64_t batch = count(in, BATCH, 128), micro = count(in, MICRO, is_old(in) ? 4 : 1), each = batch / ranks_of(c);

    if (flag(in, DYNAMIC)) {
        int64_t fit = count(in, TOKENS, 16192) / seq;
        micro = fit < 1 ? 1 : fit > each && each > 0 ? each : fit;
        notes_add(in->notes, "%s: a micro-step takes up to %" PRId64 " tokens: planned as %" PRId64 " samples of the longest length", path_of(in, DYNAMIC),
                  count(in, TOKENS, 16192), micro);
        batch = (each + micro - 1) / micro * micro * ranks_of(c);
    }
    for (size_t i = 0; i < sizeof of_deepspeed / sizeof *of_deepspeed; i++)
        if (form_value(in->f->doc, of_deepspeed[i]) && (adapts || strncmp(of_deepspeed[i], "lora_rank", 9) != 0))
            json_object_set(doc, of_deepspeed[i], (json_t *)(uintptr_t)form_value(in->f->doc, of_deepspeed[i]));
    if (ds && !adapts)
        json_object_del(ds, "lora");
    if (ds)
        json_object_set_new(doc, "ds", ds);
    if (flag(in, AGAIN))
        json_object_set_new(doc, "model", json_pack("{s:b}", "gradient_checkpointing_enable", 1));
    json_object_set_new(doc, "max_norm", json_real(import_number(in, path_of(in, CLIP), 1)));
    json_object_set_new(doc, "train", json_pack("{s:I, s:I}", "batch_size", (json_int_t)batch, "micro_batch_size", (json_int_t)micro));
    json_object_set_new(doc, "data", json_pack("{s:I}", "max_len", (json_int_t)seq));
    return doc;
}

/* A model as it trains, on the actor's GPUs or others.  0, or -1 reported. */
static int read_plan(struct importing *in, const char *model, const json_t *gpus, int64_t seq, bool adapts, struct plan *out)
{
    bool given = !model && (in->a->plan.model || in->a->plan.model_doc);
    struct notes ignored = { 0 };
    struct form_file f;

    if (!in->a->plan.cluster && !in->a->plan.cluster_doc)
        return fail("%s: say on which GPUs the models train: --cluster 8xh100", in->f->path);
    memset(out, 0, sizeof *out);
    if (named_cluster(gpus ? NULL : in->a->plan.cluster, gpus ? gpus : in->a->plan.cluster_doc, &out->cluster) < 0 ||
        named_model(given ? in->a->plan.model : model, given ? in->a->plan.model_doc : NULL, &out->model) < 0)
        return -1;
    json_t *doc = as_sft(in, &out->cluster, seq, adapts);
    form_from_doc(doc, in->f->path, &f);
    int rc = form_openrlhf.read(&f, out, &ignored);
    if (rc == 0)                                /* of the script, whose command starts all of them */
        rc = form_read_environment(&form_openrlhf, in->f, out, in->notes);
    form_close(&f);
    json_decref(doc);
    if (rc < 0)
        plan_free(out);
    return rc;
}

/* Without an optimizer nothing of it is in host memory; stage 3 may keep the weights there. */
static json_t *eval_plan(struct importing *in, const struct plan *p, int offload)
{
    json_t *plan = plan_to_json(p), *ds = json_object_get(plan, "deepspeed");

    json_object_del(plan, "logits_kept");
    json_object_del(ds, "offload_optimizer");
    if (flag(in, offload) && p->strategy == STRAT_ZERO3)
        json_object_set_new(ds, "offload_param", json_pack("{s:s, s:b}", "device", "cpu", "pin_memory", 1));
    else if (flag(in, offload))
        notes_add(in->notes, "%s: DeepSpeed moves weights to host memory under stage 3 alone: the copy stays on the GPU", path_of(in, offload));
    return plan;
}

/* ---- the document ---- */

static void add_engine(struct importing *in, const struct cast *c)
{
    json_t *engine = json_pack("{s:s, s:s, s:s, s:I, s:f, s:b, s:i, s:b}", "engine", "vllm", "driven", "async", "dtype", "bf16", "tensor",
                               (json_int_t)count(in, TENSOR, 1), "gpu_memory_utilization",
                               import_number(in, path_of(in, SHARE), 0.95), "enforce_eager", flag(in, EAGER), "sleep", !c->apart && flag(in, SLEEPS) ? 1 : 0,
                               "own_process", 1);

    if (c->apart)
        json_object_set_new(engine, "cluster", phases_part_of(&in->actor.cluster, c->gpus));
    import_role(in, "engine", engine);
}

/* The GPUs of a role that shares them with `host`, if it does and `host` is there, or has its own; NULL: the actor's. */
static const char *place_of(struct importing *in, struct cast *c, const char *name, const char *host, int nodes, int each)
{
    int64_t n = count(in, nodes, 1) * count(in, each, 8);

    if (c->together || (host && !strcmp(host, "actor")))
        return NULL;
    if (host && json_object_get(c->places, host))
        return host;
    if (n < 1 || n > 1 << 20)
        import_refuse(in, path_of(in, each), "a number of GPUs");
    else if (count(in, each, 8) > in->actor.cluster.gpus_per_node)
        import_refuse(in, path_of(in, each), "not more GPUs than a node of --cluster has");
    else
        json_object_set_new(c->places, name, phases_part_of(&in->actor.cluster, n));
    return name;
}

/* Caches are emptied where models share GPUs. */
static json_t *own_process(struct importing *in, json_t *role, bool sleeps, const char *place)
{
    json_object_set_new(role, "own_process", json_true());
    json_object_set_new(role, "empties_cache", json_true());
    if (import_flag(in, "ds.packing_samples", import_flag(in, "packing_samples", false)))
        json_object_set_new(role, "unpadded", json_true());
    if (place)
        json_object_set_new(role, "place", json_string(place));
    if (sleeps)
        json_object_set_new(role, "between", json_string(in->actor.ds.offload_optimizer.device == OFFLOAD_NONE ? "states on host" : "device"));
    return role;
}

/* A model that infers: its plan is read, made one of inference, and given its head. */
static int add_copy(struct importing *in, const struct cast *c, const char *name, const char *model, const char *place, int64_t seq, int offload, enum head_kind head)
{
    struct plan p;

    if (read_plan(in, model, place ? json_object_get(c->places, place) : NULL, seq, false, &p) < 0)
        return -1;
    json_t *plan = eval_plan(in, &p, offload);
    if (head != HEAD_LOGITS)
        import_numbers(plan, head);
    plan_free(&p);
    import_role(in, name, own_process(in, json_pack("{s:o}", "infer", plan), false, place));
    return 0;
}

static int add_critic(struct importing *in, struct cast *c, int64_t seq)
{
    const char *place = place_of(in, c, "critic", NULL, CRITIC_NODES, CRITIC_GPUS);
    struct plan p;

    if (in->failed || read_plan(in, c->critic, place ? json_object_get(c->places, place) : NULL, seq, true, &p) < 0)
        return -1;
    json_t *plan = plan_to_json(&p);
    import_numbers(plan, HEAD_VALUE);
    plan_free(&p);
    import_role(in, "critic", own_process(in, json_pack("{s:o}", "train", plan), flag(in, DS_SLEEPS), place));
    return 0;
}

/* `at_once`: with the phase before, where that is on other GPUs. */
static void add_forward(struct importing *in, const char *name, const char *role, int64_t micro, bool at_once)
{
    json_t *phase = json_pack("{s:s, s:s, s:I}", "name", name, "forward", role, "micro_batch", (json_int_t)micro);

    if (at_once)
        json_object_set_new(phase, "with_before", json_true());
    import_phase(in, phase);
}

static void add_phases(struct importing *in, const struct cast *c, int64_t seq)
{
    int64_t micro = count(in, ROLLOUT_MICRO, is_old(in) ? 8 : 1), epochs = count(in, EPOCHS, 1);

    if (flag(in, DYNAMIC)) {
        micro = count(in, ROLLOUT_TOKENS, count(in, TOKENS, 16192)) / seq;
        micro = micro < 1 ? 1 : micro;
    }
    import_phase(in, json_pack("{s:s, s:s, s:s}", "name", "weights", "hand_over", "actor", "to", "engine"));
    import_phase(in, json_pack("{s:s, s:s}", "name", "generate", "generate", "engine"));
    if (c->reward)
        add_forward(in, "rewards", "reward", micro, false);
    add_forward(in, "log-probs", "actor", micro, c->reward && !c->together);
    if (c->critic)
        add_forward(in, "values", "critic", micro, !c->together);
    if (c->refers)
        add_forward(in, "reference", "reference", micro, !c->together);
    if (c->critic)
        import_phase(in, json_pack("{s:s, s:s, s:I}", "name", "critic", "update", "critic", "epochs", (json_int_t)epochs));
    json_t *update = json_pack("{s:s, s:s, s:I}", "name", "update", "update", "actor", "epochs", (json_int_t)epochs);
    if (c->critic && !flag(in, DS_SLEEPS))
        json_object_set_new(update, "with_before", json_true());
    import_phase(in, update);
}

/* Tokens of a sample, and of its prompt.  Before 0.10 both lengths are options; since then a sample's is, and perhaps a response's. */
static int lengths(struct importing *in, int64_t *seq, int64_t *prompt, json_t **response)
{
    int64_t longest = count(in, LONGEST, is_old(in) ? 1024 : 0);

    *seq = count(in, LENGTH, is_old(in) ? count(in, PROMPT, 1024) + longest : 2048);
    longest = longest ? longest : import_longest(in);
    if (longest < 1 || longest >= *seq)
        return fail("%s: %s: %s: how many of the %" PRId64 " tokens of a sample a response may have: --response MEAN,LONGEST says it", in->f->path, names[LONGEST][0],
                    longest < 1 ? "not given" : "leaves no prompt", *seq);
    int64_t asked = import_longest(in), left = *seq - longest;
    double said = (double)left;
    int rc = is_old(in) ? import_response(in, longest, response) :
             import_lengths(in, longest, left + (asked ? asked : longest), names[LENGTH][0], response, &said);
    *prompt = (int64_t)said;
    return rc;
}

/* Who is beside the actor. */
static int add_others(struct importing *in, struct cast *c, int64_t seq)
{
    bool given = in->a->plan.model || in->a->plan.model_doc;

    if (c->critic && add_critic(in, c, seq) < 0)
        return -1;
    const char *place = c->reward ? place_of(in, c, "reward", flag(in, WITH_REWARD) ? "critic" : NULL, REWARD_NODES, REWARD_GPUS) : NULL;
    if (in->failed || (c->reward && add_copy(in, c, "reward", c->reward, place, seq, REWARD_OFFLOAD, HEAD_SCORE) < 0))
        return -1;
    place = c->refers ? place_of(in, c, "reference", flag(in, WITH_REF) ? "actor" : NULL, REF_NODES, REF_GPUS) : NULL;
    if (in->failed || (c->refers && add_copy(in, c, "reference", given ? NULL : text(in, ACTOR), place, seq, REF_OFFLOAD, HEAD_LOGITS) < 0))
        return -1;
    return 0;
}

static json_t *planned(struct importing *in, struct cast *c)
{
    int64_t seq = 0, prompt = 0, n = count(in, SAMPLES, 1);
    json_t *response = NULL;

    if (find_cast(in, c) < 0 || refuses(in, c) < 0 || lengths(in, &seq, &prompt, &response) < 0)
        return NULL;
    if (read_plan(in, in->a->plan.model || in->a->plan.model_doc ? NULL : text(in, ACTOR), NULL, seq, true, &in->actor) < 0) {
        json_decref(response);
        return NULL;
    }
    unread_ranks(in->notes, names[GPUS][0], count(in, NODES, 1) * count(in, GPUS, 8), in->actor.cluster.world_size);
    phases_openrlhf_known(in);
    import_role(in, "actor", own_process(in, json_pack("{s:o}", "train", plan_to_json(&in->actor)), flag(in, DS_SLEEPS), NULL));
    if (add_others(in, c, seq) < 0) {
        json_decref(response);
        return NULL;
    }
    add_engine(in, c);
    add_phases(in, c, seq);
    if (!c->reward)
        notes_add(in->notes, "rewards come from a function or a service: they take no time and no memory here");
    json_t *doc = import_document(in, "OpenRLHF", count(in, ROLLOUT, 1024) * n, n, prompt, response);
    if (flag(in, ASYNC))
        json_object_set_new(doc, "asynchronous", json_true());
    if (json_object_size(c->places) > 0)
        json_object_set(doc, "places", c->places);
    return doc;
}

json_t *phases_openrlhf(struct importing *in)
{
    struct cast c = { .places = json_object() };
    json_t *doc = planned(in, &c);

    json_decref(c.places);
    return doc;
}
