/* moments.h -- bytes of a GPU in each phase, and in the largest moment over them.
 *
 * Roles that train or infer are one process with one allocator, but for those with a process of their own ("own_process": OpenRLHF starts one for
 * each role, trainer/ray/launcher.py; each has a CUDA context and communicators too).  In a phase a process holds
 *
 *     live     = what each role has on the device between phases + what the one that acts adds at its peak
 *     reserved = the larger of what was reserved before and live + what the allocator's blocks lose in that phase
 *
 * Behind a phase what is reserved stays, unless the framework calls torch.cuda.empty_cache(): then what persists stays, with what is lost in its
 * segments.  In its own phase a process gives reserved blocks back before it runs out (live counts); in another's it does not know (reserved
 * counts).  The last phase hands on to the first: the sequence is walked until it repeats.
 *
 * Where phases were replayed through one allocator (struct replayed) what it reserved counts, and live at most what it had handed out.
 *
 * What is elsewhere than in the phase before was moved: to host memory, and back.  Weights that an engine drops (level 2) are not; nor are those
 * that come with a hand over.
 *
 * What a phase leaves is on to the next phase of its process.  Frameworks empty the cache here: verl 0.7.0 behind generate_sequences() and whenever it offloads (fsdp_workers.py: empty_cache();
 * utils/fsdp_utils.py: offload_fsdp_model_to_cpu(empty_cache=True)); TRL before it wakes vLLM's weights, where vllm_enable_sleep_mode is set
 * (generation/vllm_generation.py: sync_weights()), else never; OpenRLHF 0.11 behind each forward where all models share GPUs, around fit() and
 * the hand over (trainer/ppo_utils/experience_maker.py: _dispatch_forward(), trainer/ray/ppo_actor.py); NeMo-RL whenever it offloads
 * (models/policy/workers: offload_before_refit(), offload_after_refit()). */
#ifndef DPX_MOMENTS_H
#define DPX_MOMENTS_H

#include "sim/phases/phase_plan.h"

/* Bytes of a GPU that a role has. */
struct role_bytes {
    int64_t params, states, other;  /* between its steps: parameters, optimizer states, the rest */
    int64_t lost;                   /* in segments, once the cache is emptied */
    int64_t outside, context;       /* NCCL; CUDA's context, of a process beside the first */
    int64_t update, update_reserved;    /* at the peak of a training step, all of its own included; as allocated, as reserved */
    int64_t awake, loading, asleep, host;   /* of an engine (engine.h) */
};

/* What a phase has. */
struct moment {
    int64_t acts;                   /* what the acting role adds to what it has between phases, at its peak */
    int64_t live, reserved;         /* of the trainers' processes */
    int64_t outside;                /* NCCL of those processes, and contexts of all but the first */
    int64_t engine;                 /* on the same GPU */
    int64_t needed;                 /* what must be there */
    int64_t taken;                  /* with what is reserved */
    int64_t host;                   /* in host memory, of one rank */
    int64_t moved;                  /* to and from host memory since the phase before, of one rank */
    int64_t swapped;                /* weights that go to host memory, come from it and come back while another model's stand in their place: pinned */
    int64_t anew;                   /* of it into memory allocated anew ("pageable") */
};

/* What the allocator of a process has in each phase, as a replay of all of them says (sim/plan/phases_replay.h): of process 0, which roles without one
 * of their own share, and of role i as process i + 1, of the GPUs of one place.  Where it is not `known` the figures above count. */
struct replayed {
    bool    known[PHASE_ROLES + 1];
    int64_t reserved[PHASE_ROLES + 1][PHASE_STEPS], allocated[PHASE_ROLES + 1][PHASE_STEPS];
    int     no_room[PHASE_ROLES + 1];   /* on the card itself a request of this phase finds no room, counted from 1; 0: all do */
};

/* Of the GPUs of one place.  `own[i]`: bytes of the acting role at the peak of phase i, its parameters and rest included and states not; of an update all.  `p`, `role`:
 * as many as the plan has.  `r` may be NULL. */
void moments_of(const struct phase_plan *p, const struct role_bytes *role, const int64_t *own, const struct replayed *r, int place, struct moment *out);
/* Where a role is in a phase in which it does not act; the process that it is in; whether it acts. */
enum role_where moments_where(const struct phase_plan *p, const struct phase_step *s, int i);
int  moments_process(const struct phase_plan *p, int i);
bool moments_acts(const struct phase_step *s, int i);

/* The phase that needs most. */
int  moments_largest(const struct phase_plan *p, const struct moment *m);

#endif
