/* phases_nemo_ahead.c -- NeMo-RL's generation ahead of the training: grpo.async_grpo, ppo.async_ppo, and the single controller's async_rl, in whose files
 * grpo.async_grpo must be null (examples/run_grpo_single_controller.py, August 2026). */
#include "sim/plan/phases_nemo.h"

#include <inttypes.h>
#include <string.h>

/* The single controller's (async_utils/staleness_sampler.py): how many steps' prompts may be under way before the trainer is there.  0: none. */
static int64_t controllers_ahead(struct importing *in, int64_t prompts)
{
    static const char sampler[] = "async_rl.sampler.name", stream[] = "async_rl.min_groups_for_streaming_train";
    const char *name = import_text(in, sampler, "in_order");
    bool ordered = !strcmp(name, "in_order"), other = !strcmp(name, "windowed") || !strcmp(name, "ready_first") || !strcmp(name, "weight_fifo");
    int64_t ahead = import_count(in, ordered ? "async_rl.sampler.max_lookahead_versions" : "async_rl.sampler.max_staleness_versions", 0, 1);
    int64_t groups = import_count(in, stream, 1, 32);

    if (!ordered && !other)
        import_refuse(in, sampler, "windowed, ready_first, weight_fifo or in_order");
    if (ahead == 0 && groups < prompts)
        notes_add(in->notes, "%s: training begins when %" PRId64 " of %" PRId64 " groups are there: the plan has it begin with the last", stream, groups, prompts);
    return ahead;
}

/* Steps whose prompts are in flight beside the one that trains (async_utils.py); 0: each step waits for its own. */
int64_t nemo_steps_ahead(struct importing *in, bool ppo, int64_t prompts)
{
    if (!ppo && json_is_object(json_object_get(in->f->doc, "async_rl")))
        return controllers_ahead(in, prompts);
    int64_t ahead = import_count(in, ppo ? "ppo.async_ppo.max_trajectory_age_steps" : "grpo.async_grpo.max_trajectory_age_steps", 1, 1);
    return import_flag(in, ppo ? "ppo.async_ppo.enabled" : "grpo.async_grpo.enabled", false) ? ahead : 0;
}
