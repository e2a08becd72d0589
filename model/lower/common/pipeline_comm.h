/* pipeline_comm.h -- what each rank of a pipeline does, in order: passes, sends and receives and what waits for
 * them, and, for FSDP2, when a stage's parameters are gathered and its gradients reduced.
 *
 *     struct pipeline p = { PIPELINE_1F1B, .ranks = 4, .chunks = 1, .steps = 8 };
 *     struct pipeline_acts *of = pipeline_acts(&p, PIPE_OWN_LOOP);
 *     ... of[rank].act[0 .. of[rank].n) ...
 *     pipeline_acts_free(of, &p);
 *
 * Source: torch/distributed/pipelining/schedules.py, PyTorch 2.15.0 and 2.9.1; megatron/core/pipeline_parallel of 0.16.1;
 * deepspeed/runtime/pipe of 0.19.6.  Stages on neighbouring chunks of one
 * rank (a V's bottom) hand their tensors over: no messages. */
#ifndef DPX_PIPELINE_COMM_H
#define DPX_PIPELINE_COMM_H

#include "model/lower/common/pipeline_order.h"

/* The first four are enum micro_pass.  A wait is one of the compute stream for a message. */
enum pipeline_verb {
    PIPE_FORWARD, PIPE_BACKWARD, PIPE_INPUT, PIPE_WEIGHT,
    PIPE_SEND_F, PIPE_RECV_F, PIPE_SEND_B, PIPE_RECV_B,
    PIPE_WAIT_SEND_F, PIPE_WAIT_RECV_F, PIPE_WAIT_SEND_B, PIPE_WAIT_RECV_B,
    PIPE_UNSHARD, PIPE_RESHARD,             /* all units of a stage: gathered, freed */
    PIPE_REDUCE, PIPE_WAIT_REDUCE,
    NPIPE_VERB
};

/* `with`: it is one with the act after it: a pair of passes, or a batch of messages that begin together and of
 * waits for them. */
struct pipeline_act { uint8_t verb; bool with; int16_t chunk; int32_t step; };

struct pipeline_acts { struct pipeline_act *act; int n, room; };

/* Which code runs the order. */
enum pipeline_code {
    PIPE_RUNTIME,           /* _PipelineScheduleRuntime: 2.15, all that may have several stages a rank */
    PIPE_OWN_LOOP,          /* ScheduleGPipe, Schedule1F1B: 2.15 */
    PIPE_OWN_LOOP_29,       /* the same of 2.9: gradients are reduced in the last backward */
    PIPE_LOCK_STEP_29,      /* 2.9's PipelineScheduleMulti: after each time step's pass one batch of messages, which is waited for */
    PIPE_MEGATRON,          /* Megatron-LM's, each exchange of messages waited for at once */
    PIPE_MEGATRON_OVERLAPS, /* its interleaved one with overlap_p2p_comm */
    PIPE_DEEPSPEED,         /* PipelineEngine: each message waited for at once */
};

/* Appends an act. */
void pipeline_acts_add(struct pipeline_acts *l, enum pipeline_verb verb, int chunk, int step, bool with);

/* The list of a rank by Megatron-LM's schedules.py: no gathers and no reductions (pipeline_megatron.c). */
void pipeline_megatron(const struct pipeline *p, int rank, bool overlaps, struct pipeline_acts *out);

/* The same by DeepSpeed's TrainSchedule (pipeline_deepspeed.c). */
void pipeline_deepspeed(const struct pipeline *p, int rank, struct pipeline_acts *out);

/* One list for each rank of the pipe; never NULL. */
struct pipeline_acts *pipeline_acts(const struct pipeline *p, enum pipeline_code code);
/* That of rank p->rank, into an empty one: its acts are the caller's. */
void pipeline_acts_of(const struct pipeline *p, enum pipeline_code code, struct pipeline_acts *out);
void pipeline_acts_free(struct pipeline_acts *of, const struct pipeline *p);

/* What PyTorch calls a verb: "SEND_F"; its own names for waits of receives, which it has none for. */
const char *pipeline_verb_name(enum pipeline_verb v);

#endif
