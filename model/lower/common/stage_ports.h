/* stage_ports.h -- what a pipeline's rank does around its passes: sends and receives, waits for them, and the
 * memory of what is sent and received.
 *
 *     struct stage_ports ports;
 *     static void act(void *arg, const struct pipeline_act *a)
 *     {
 *         if (stage_ports_does(ports, a))
 *             return;                             (a message, or a wait for one)
 *         stage_ports_begin(ports, a);
 *         ... the pass of chunk a->chunk ...
 *         stage_ports_end(ports, a);
 *     }
 *     stage_ports_open(&ports, local, s, PIPE_OWN_LOOP, &memory, first, false);
 *     stage_ports_run(&ports, act, arg);
 *     stage_ports_close(&ports);                      (and so for each step)
 *     stage_ports_free(&ports);
 *
 * A boundary tensor is what one block hands to the next: (samples, the rank's positions, hidden) in the dtype of
 * activations; its gradient is of the same size (torch/distributed/pipelining/stage.py). */
#ifndef DPX_STAGE_PORTS_H
#define DPX_STAGE_PORTS_H

#include "model/lower/common/lower_internal.h"
#include "model/lower/common/pipeline_fold.h"

/* Families that PyTorch keeps beside; -1: not here.  Before 2.15 every stage has a receive buffer for each micro-step,
 * made in the first step and kept (_prepare_forward_infra(), _create_grad_recv_info()).  The last one keeps every micro-step's
 * output, the logits, until the next step begins, and makes one tensor of them (output_chunks, _merge_outputs()): with 2.15
 * where the loop leaves return_outputs as it is ("logits_kept"). */
struct stage_memory { int received, gradients, outputs, merged; };

void stage_memory_declare(struct stage_memory *m, const struct local_model *local, struct schedules *s);

struct stage_ports {
    const struct local_model *local;
    struct schedules *s;
    struct pipeline pipe;
    struct pipeline_fold acts;
    int64_t  *passed;                   /* acts that were run or are left to a repeat: by verb, chunk */
    uint16_t *event;                    /* of messages: by direction, chunk, as many as are under way */
    int64_t   elems;                    /* of a boundary tensor */
    enum dtype dtype;
    struct stage_memory memory;
    bool      keeps;                    /* what was sent stays until its backward is done */
    bool      batches, both_ways;       /* all messages of a batch begin together; two ranks have a communicator for each direction */
    bool      coalesced;                /* the message that follows is in a batch with this one */
};

/* The pipeline of a plan, as `rank` sees it; ranks 1: none. */
struct pipeline stage_pipeline(const struct plan *p, int64_t rank);

/* Where its schedules open, `first` or not.  `keeps`: PyTorch 2.9, and DistributedDataParallel, hold a stage's output until its backward (2.15: until it is sent).
 * 0, or -1 reported: more micro-steps than there are events.  stage_ports_close() in any case.  The list of acts is that of the ports' last
 * opening, if there was one: zeroed before the first, stage_ports_free() behind the last. */
int  stage_ports_open(struct stage_ports *o, const struct local_model *local, struct schedules *s, enum pipeline_code code,
                      const struct stage_memory *m, bool first, bool keeps);
void stage_ports_close(struct stage_ports *o);
void stage_ports_free(struct stage_ports *o);

/* Before the first step's passes: 2.15 votes on how shapes are inferred and connects neighbours, in rounds
 * (schedules.py _initialize_pipeline_distributed_state, _p2p.py _preconnect_shared_p2p_edges). */
void stage_ports_connect(struct stage_ports *o);

/* Calls f for each act in order.  Where the schedules fold, acts that come again and again and append the same entries become a repeat:
 * f is called for the first of them alone, and so keeps no count of its own. */
void stage_ports_run(struct stage_ports *o, void (*f)(void *arg, const struct pipeline_act *a), void *arg);

/* Acts of a chunk that came before the one that runs. */
int64_t stage_ports_passed(const struct stage_ports *o, enum pipeline_verb v, int chunk);

/* Appends a message or a wait; false: the act is neither. */
bool stage_ports_does(struct stage_ports *o, const struct pipeline_act *a);

/* After the last of them. */
void stage_ports_finish(struct stage_ports *o);

/* The first stage has no input that needs a gradient: its INPUT runs nothing, its WEIGHT all of backward. */
bool stage_ports_idle(const struct stage_ports *o, const struct pipeline_act *a);
bool stage_ports_whole(const struct stage_ports *o, const struct pipeline_act *a);

/* Around a pass. */
void stage_ports_begin(struct stage_ports *o, const struct pipeline_act *a);
void stage_ports_end(struct stage_ports *o, const struct pipeline_act *a);

/* Whether the stage that is a chunk of this rank has the embedding, the head. */
bool stage_ports_embeds(const struct stage_ports *o, int chunk);
bool stage_ports_heads(const struct stage_ports *o, int chunk);

/* The first of a chunk's blocks in the rank's own numbers, and one past its last. */
int  stage_ports_block0(const struct stage_ports *o, int chunk);
int  stage_ports_block1(const struct stage_ports *o, int chunk);

#endif
