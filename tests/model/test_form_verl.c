/* A script of verl's is read as what its program, its release and its values make of it; what verl stops at is refused, what no plan has is told. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/transformer.h"
#include "model/form/form.h"

#define COUNT(list) (sizeof (list) / sizeof *(list))
#define UPDATE "actor_rollout_ref.model.path=Qwen/Qwen3-0.6B actor_rollout_ref.actor.ppo_mini_batch_size=8 data.max_prompt_length=64 data.max_response_length=64 " \
               "actor_rollout_ref.actor."
#define STEP   "python3 -m verl.trainer.main_ppo " UPDATE "ppo_micro_batch_size_per_gpu=1 "

/* What a script becomes: its plan and notes, or the refusal, in `said`. */
static bool becomes(const char *text, struct plan *p, char said[16384])
{
    struct notes notes = { 0 };
    struct form_file f;
    size_t n = 0;

    *p = (struct plan){ 0 };
    said[0] = '\0';
    fail_capture(said, 16384);
    assert_int_equal(form_parse(strdup(text), "verl.sh", &f), 0);
    const struct form *form = form_of(&f);
    assert_non_null(form);
    assert_int_equal(model_load("qwen3-0.6b", &p->model), 0);
    assert_int_equal(cluster_load("2xh100", &p->cluster), 0);
    int rc = form_check(form, &f) < 0 ? -1 : form_read(form, &f, p, &notes);
    fail_capture(NULL, 0);
    for (int i = 0; rc == 0 && i < notes.n && i < (int)COUNT(notes.text); i++)
        n += (size_t)snprintf(said + n, 16384 - n, "%s\n", notes.text[i]);
    form_close(&f);
    return rc == 0;
}

/* Programs with an update of their own; values at which verl stops (workers/config/actor.py, utils/config.py, trainer/ppo/core_algos.py). */
static void what_verl_stops_at_is_refused(void **state)
{
    static const struct { const char *text, *why; } files[] = {
        { "python3 -m recipe.spin.main_spin " UPDATE "ppo_micro_batch_size_per_gpu=1\n", "recipe.spin.main_spin" },
        { "python3 -m verl.experimental.vla.main_ppo " UPDATE "ppo_micro_batch_size_per_gpu=1\n", "vla.main_ppo" },
        { STEP "data.train_batch_size=4\n", "data.train_batch_size: 4" },
        { STEP "data.train_batch_size=9\n", "do not divide by 2" },
        { STEP "actor_rollout_ref.actor.ppo_micro_batch_size=8\n", "ppo_micro_batch_size_per_gpu is given, too" },
        { "python3 -m verl.trainer.main_ppo " UPDATE "ppo_micro_batch_size=3\n", "does not divide by it" },
        { STEP "algorithm.kl_penalty=zzz\n", "algorithm.kl_penalty" },
        { STEP "algorithm.use_kl_in_reward=zzz\n", "algorithm.use_kl_in_reward" },
        { STEP "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=-3\n", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu" },
        { STEP "actor_rollout_ref.rollout.gpu_memory_utilization=1.2\n", "gpu_memory_utilization" },
        { STEP "--config-name=ppo_megatron_trainer actor_rollout_ref.actor.strategy=fsdp\n", "actor.strategy" },
        { STEP "--config-name=ppo_megatron_trainer actor_rollout_ref.model.use_fused_kernels=True trainer.use_legacy_worker_impl=disable\n", "use_fused_kernels" },
        { STEP "actor_rollout_ref.actor.fsdp_config.grad_offload=True\n", "an entropy of padded samples" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        char said[16384];
        struct plan p;
        if (becomes(files[i].text, &p, said) || !strstr(said, files[i].why))
            fail_msg("%s: not refused with \"%s\": %s", files[i].text, files[i].why, said);
        plan_free(&p);
    }
}

/* Each says what it asks for, and nothing of what it does not. */
static void what_no_plan_has_is_told(void **state)
{
    static const struct { const char *text, *said, *not_said; } files[] = {
        { STEP "algorithm.adv_estimator=grpo critic.model.path=a/c\n", "the actor's update alone", "critic" },
        { STEP "critic.model.path=a/c\n", "the critic's update is a phase of its own", "ppo_epochs" },
        { STEP "algorithm.adv_estimator=grpo critic.enable=True\n", "has a critic", "not known" },
        { STEP "algorithm.adv_estimator=zzz\n", "zzz is none of verl's own", "critic.model" },
        { STEP "algorithm.adv_estimator=grpo actor_rollout_ref.actor.ppo_epochs=3\n", "an iteration has 3 times the steps", "critic" },
        { STEP "actor_rollout_ref.model.lora.rank=32 actor_rollout_ref.model.lora.alpha=64\n", "there are no adapters and every weight trains", "not known" },
        /* 128 tokens x 151936 words x 2 bytes of a sample */
        { STEP "actor_rollout_ref.actor.use_torch_compile=False\n", "0.0389 GB each", "not known" },
        { STEP "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True\n", "2048 tokens at a time", "not known" },
        { STEP "actor_rollout_ref.ref.zzz=False\n", "actor_rollout_ref.ref.zzz", "a program of its own" },
        { STEP "algorithm.zzz=False\n", "algorithm.zzz", "a program of its own" },
        { "python3 -m recipe.dapo.main_dapo " UPDATE "ppo_micro_batch_size_per_gpu=1\n", "the actor's update alone", "a program of its own" },
        { "python3 train.py " UPDATE "ppo_micro_batch_size_per_gpu=1\n", "train.py: a program of its own", "not known" },
        { "python3 -m verl.trainer.main_ppo " UPDATE "ppo_micro_batch_size=8\n", "a second copy of the logits, 0.156 GB here", "not known" },      /* 4 samples */
        { "torchrun --nproc-per-node=2 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=8 data.max_length=256 model.partial_pretrain=a/b use_remove_padding=true\n",
          "does nothing where ulysses_sequence_parallel_size is 1", "without padding" },
        { "torchrun --nproc-per-node=2 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=8 data.max_length=256 model.partial_pretrain=a/b use_remove_padding=true "
          "ulysses_sequence_parallel_size=2\n", "without padding", "does nothing" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        char said[16384];
        struct plan p;
        bool read = becomes(files[i].text, &p, said);
        if (!read || !strstr(said, files[i].said) || strstr(said, files[i].not_said))
            fail_msg("%s: wanted \"%s\" and not \"%s\": %s", files[i].text, files[i].said, files[i].not_said, said);
        plan_free(&p);
    }
}

/* The entropy is in every loss until April 2025, whatever its coefficient; blocks are recomputed where it is asked for. */
static void first_releases_have_their_own_defaults(void **state)
{
#define FIRST STEP "actor_rollout_ref.actor.fsdp_config.grad_offload=False actor_rollout_ref.model.use_remove_padding=True "
    static const struct { const char *text; enum loss_kind loss; bool recomputes; } files[] = {
        { STEP "\n", LOSS_FUSED_IN_PLACE, true },
        { FIRST "\n", LOSS_FUSED_ENTROPY, false },
        { FIRST "actor_rollout_ref.actor.entropy_coeff=0 actor_rollout_ref.model.enable_gradient_checkpointing=True\n", LOSS_FUSED_ENTROPY, true },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        char said[16384];
        struct plan p;
        if (!becomes(files[i].text, &p, said))
            fail_msg("%s: %s", files[i].text, said);
        assert_int_equal(p.loss, files[i].loss);
        assert_int_equal(p.recompute == RECOMPUTE_FULL, files[i].recomputes);
        plan_free(&p);
    }
}

/* Fewer prompts than a mini-batch: with dynamic batches a step takes them all, 4 of 8 on 2 GPUs. */
static void a_step_takes_no_more_than_an_iteration_has(void **state)
{
    static const struct { const char *prompts; int64_t samples; const char *said; } rows[] = {
        { "4", 4, "ppo_mini_batch_size, 8, is never reached" }, { "8", 8, "" }, { "16", 8, "" }, { "0", 8, "" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[1024], said[16384];
        struct plan p;
        snprintf(text, sizeof text, STEP "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=128 data.train_batch_size=%s\n",
                 rows[i].prompts);
        if (!becomes(text, &p, said))
            fail_msg("%s: %s", text, said);
        assert_int_equal(p.micro_batch * p.accumulation * 2, rows[i].samples);
        assert_int_equal(strstr(said, "is never reached") != NULL, *rows[i].said != '\0');
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_verl_stops_at_is_refused),
        cmocka_unit_test(what_no_plan_has_is_told),
        cmocka_unit_test(first_releases_have_their_own_defaults),
        cmocka_unit_test(a_step_takes_no_more_than_an_iteration_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
