/* Offload of PyTorch's kinds: FSDP2's CPUOffloadPolicy, and activations in host memory for every strategy.  Expected
 * values are sums over the model's tensors written down here, and the frameworks' own rules. */
#include "tests/model/plans.h"

#include "model/lower/common/pinned.h"
#include "model/schedule/ledger.h"

static struct schedules s;

static void peak_in(unsigned in, struct ledger *l) { ledger_run_in(&s, in, l); }

/* ---- PyTorch's pinned allocator ---- */

static void pinned_memory_comes_in_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(pinned_bytes(0), 0);
    assert_int_equal(pinned_bytes(1), 1);
    assert_int_equal(pinned_bytes(100000000), 134217728);
    assert_int_equal(pinned_bytes(134217728), 134217728);
    assert_int_equal(pinned_bytes(134217729), 268435456);
    assert_int_equal(pinned_bytes(11008 * 4096 / 8 * 4), 33554432);    /* 22,544,384 */
    assert_int_equal(pinned_bytes(2049 * 4096 * 2), 33554432);
    assert_int_equal(pageable_bytes(100000001), 100000001);
}

/* ---- CPUOffloadPolicy ---- */

static void offloaded(struct plan *p, const char *name, int64_t layers, int64_t n, bool pin, enum dtype t)
{
    plan_of(p, name, layers, n, STRAT_FSDP, DIALECT_TORCH, t);
    p->fsdp.cpu_offload = true;
    p->fsdp.pin_memory = pin;
    p->reduce_dtype = DT_FP32;
}

static int64_t power(int64_t bytes)
{
    int64_t p = bytes > 0 ? 1 : 0;
    while (p < bytes)
        p += p;
    return p;
}

/* Llama-2-7B on 8 ranks in fp32.  A block: 4 of 4096^2, 3 of 11008 x 4096, 2 norms: 101,191,680 bytes a rank; four
 * are powers of two, three grow from 22,544,384 to 33,554,432: 134,221,824 pinned.  With 2 of 32000 x 4096 (65,536,000 to
 * 67,108,864) and a norm: 4,429,318,144 for parameters, as many for gradients, 8 bytes an element for states. */
static void llama_7b_takes_what_the_vectors_say(void **state)
{
    (void)state;
    struct ledger pinned, host, device;
    struct plan p;

    offloaded(&p, "llama-2-7b", 0, 8, true, DT_BF16);
    lowered(&p, 0, &s);
    peak_in(IN(SPACE_PINNED), &pinned);
    peak_in(IN(SPACE_HOST), &host);
    peak_in(IN(SPACE_DEVICE), &device);
    assert_int_equal(pinned.persistent[CAT_PARAMS], 4429318144);
    assert_int_equal(pinned.peak.bytes, 2 * 4429318144);
    assert_int_equal(host.persistent[CAT_OPTIMIZER], 8 * (int64_t)842301952);
    assert_int_equal(pinned.peak.bytes + host.persistent[CAT_OPTIMIZER], 15597051904);
    for (int c = CAT_PARAMS; c <= CAT_OPTIMIZER; c++)
        assert_int_equal(device.persistent[c], 0);
    plan_free(&p);
}

/* Copies between memories, of one step: bytes to the device and from it. */
struct moved { int64_t up, down, copies; };

static int add_moved(const struct schedules *t, const struct op *o, int64_t iteration, void *arg)
{
    struct moved *m = arg;
    enum space from, to;

    (void)iteration;
    if (o->kind != OP_COPY || !sched_crosses(t, o, &from, &to))
        return 0;
    m->up += to == SPACE_DEVICE ? o->u.copy.writes : 0;
    m->down += from == SPACE_DEVICE ? o->u.copy.reads : 0;
    m->copies += from == SPACE_DEVICE || to == SPACE_DEVICE;
    return 0;
}

static struct moved moved(enum sched_id id)
{
    struct moved m = { 0, 0, 0 };

    sched_walk(&s, id, add_moved, &m);
    return m;
}

/* The same model: 3,369,207,808 bytes a rank go up in each pass, fp32 for bf16 compute.  FSDP2's default keeps the root after
 * forward, so its 2 tensors and norm (131,074,048) go up once a micro-step; with the root freed too, all twice.  One copy
 * for each parameter. */
static void shards_go_up_in_fp32_once_a_pass(void **state)
{
    (void)state;
    static const int64_t steps[] = { 1, 4 };
    struct plan p;

    for (int k = 0; k < 2; k++)
        for (int root = 0; root < 2; root++) {
            int64_t m = steps[k], all = 3369207808, kept = root ? 0 : 131074048;
            offloaded(&p, "llama-2-7b", 0, 8, true, DT_BF16);
            p.accumulation = m;
            p.fsdp.root_reshard_after_forward = root ? 1 : -1;
            lowered(&p, 0, &s);
            struct moved got = moved(SCHED_STEADY);
            assert_int_equal(got.up, m * (2 * all - kept));
            assert_int_equal(got.down, m * all);
            assert_int_equal(got.copies, m * (3 * (32 * 9 + 3) - (root ? 0 : 3)));
            plan_free(&p);
        }
}

/* optimizer_offload, of the same model: two moments of 3,369,207,808 bytes a rank in fp32, and a counter for each of 291 parameters, come
 * once a step and go once, whatever accumulates; the first step makes them.  Pinned they take what parameters would. */
static void states_come_for_the_step_alone(void **state)
{
    (void)state;
    int64_t all = 2 * (int64_t)3369207808 + 291 * 512;
    struct ledger device, pinned, host;
    struct plan p;

    for (int64_t m = 1; m <= 4; m += 3) {
        plan_of(&p, "llama-2-7b", 0, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.kernels = KERNELS_TORCH_SDPA;
        p.accumulation = m;
        p.fsdp.optimizer_offload = true;
        lowered(&p, 0, &s);
        assert_int_equal(moved(SCHED_STEADY).up, all);
        assert_int_equal(moved(SCHED_STEADY).down, all);
        assert_int_equal(moved(SCHED_FIRST).up, 0);
        assert_int_equal(moved(SCHED_FIRST).down, all);
        peak_in(IN(SPACE_DEVICE), &device);
        peak_in(IN(SPACE_PINNED), &pinned);
        peak_in(IN(SPACE_HOST), &host);
        assert_int_equal(device.persistent[CAT_OPTIMIZER], 0);
        assert_int_equal(pinned.persistent[CAT_OPTIMIZER], 2 * 4429318144);
        assert_int_equal(host.peak.bytes, 32000 * 4096 / 8 * 4);     /* the largest, before it is pinned */
        plan_free(&p);
    }
}

/* Where the optimizer's step is the largest moment: parameters, gradients, states and foreach's temporaries. */
static void states_and_activations_never_stand_together(void **state)
{
    (void)state;
    int64_t peak[2];
    struct ledger device;
    struct plan p;

    for (int away = 0; away < 2; away++) {
        plan_of(&p, "gpt2", 0, 2, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.kernels = KERNELS_TORCH_SDPA;
        p.seq = 64;
        p.fsdp.optimizer_offload = away;
        lowered(&p, 0, &s);
        peak_in(IN(SPACE_DEVICE), &device);
        peak[away] = device.peak.bytes;
        assert_int_equal(device.persistent[CAT_OPTIMIZER] > 0, !away);
        plan_free(&p);
    }
    assert_int_equal(s.ops[device.peak.op].phase, PHASE_OPTIMIZER);
    assert_true(peak[1] <= peak[0] + 148 * 512);        /* counters, which stay on the host elsewhere */
}

/* Host memory follows from the tensors alone: rows are padded for parameters, not for gradients and states; what is not
 * pinned is exact.  AdamW's loop makes two tensors of a parameter while it still has one of the parameter before. */
static void host_memory_is_summed_tensor_by_tensor(void **state)
{
    (void)state;
    struct plan p;

    for (int pin = 0; pin < 2; pin++)
        for (int w = 0; w < NWORLDS; w++) {
            int64_t n = worlds[w], params = 0, grads = 0, states = 0, most = 0, before = 0;
            offloaded(&p, "gpt2", 3, n, pin, DT_BF16);
            lowered(&p, n - 1, &s);
            for (int t = 0; t < p.model.ntensors; t++) {
                int64_t rows = p.model.tensors[t].shape[0], each = (rows + n - 1) / n, row = p.model.tensors[t].numel / rows;
                int64_t left = rows - (n - 1) * each, own = (left < 0 ? 0 : left) * row * 4;
                params += pin ? power(each * row * 4) : each * row * 4;
                grads += pin ? power(own) : own;
                states += 2 * own;
                most = before + 2 * own > most ? before + 2 * own : most;
                before = own;
            }
            struct ledger pinned, host;
            peak_in(IN(SPACE_PINNED), &pinned);
            peak_in(IN(SPACE_HOST), &host);
            assert_int_equal((pin ? &pinned : &host)->persistent[CAT_PARAMS], params);
            assert_int_equal(pinned.peak.bytes, pin ? params + grads : 0);
            assert_int_equal(host.persistent[CAT_OPTIMIZER], states);
            assert_true(host.peak.bytes >= states + most + (pin ? 0 : params + grads));
            plan_free(&p);
        }
}

/* A later micro-step's gradient comes into pageable memory, waited for, and is added there. */
static void accumulation_adds_on_the_host(void **state)
{
    (void)state;
    struct plan p;

    offloaded(&p, "gpt2", 2, 4, true, DT_FP32);
    p.accumulation = 3;
    p.sync_every_micro_step = true;
    lowered(&p, 0, &s);
    int64_t adds = 0;
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
        const struct op *o = &s.ops[i];
        if (o->kind != OP_COPY || o->u.copy.fn != COPY_ADD)
            continue;
        assert_int_equal(o->stream, STREAM_HOST);
        assert_int_equal(s.ops[i + 1].kind, OP_WAIT);
        adds++;
    }
    assert_true(adds > 0);
    plan_free(&p);
}

static void the_cpu_steps_after_the_copies_and_before_the_next_forward(void **state)
{
    (void)state;
    struct plan p;
    int waits = 0, optimizer = 0;

    offloaded(&p, "gpt2", 2, 4, true, DT_BF16);
    p.clip = 1;
    lowered(&p, 0, &s);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
        const struct op *o = &s.ops[i];
        if (o->kind == OP_WAIT && (o->after & AFTER(STREAM_REDUCE)) && !optimizer)
            waits++;
        if (o->phase == PHASE_OPTIMIZER && (o->kind == OP_COPY || o->kind == OP_OPTIMIZER))
            assert_int_equal(o->stream, STREAM_HOST);
        if (o->kind == OP_OPTIMIZER) {
            optimizer++;
            assert_true(waits > 0);
            assert_int_equal(s.ops[i + 1].kind, OP_WAIT);
            assert_true(s.ops[i + 1].after & AFTER(STREAM_HOST));
        }
    }
    assert_int_equal(optimizer, 1);
    plan_free(&p);
}

/* ---- activations ---- */

static const struct { enum strategy s; enum dialect d; } cells[] = {
    { STRAT_DP, DIALECT_TORCH }, { STRAT_DDP, DIALECT_TORCH }, { STRAT_ZERO1, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH },
    { STRAT_FSDP, DIALECT_TORCH_FSDP1 }, { STRAT_DDP, DIALECT_PAPER }, { STRAT_ZERO2, DIALECT_PAPER },
    { STRAT_ZERO3, DIALECT_PAPER }, { STRAT_ZERO1, DIALECT_DEEPSPEED }, { STRAT_ZERO2, DIALECT_DEEPSPEED },
    { STRAT_ZERO3, DIALECT_DEEPSPEED },
};

/* What blocks keep goes down and comes up once a micro-step; all of it is away when the head computes. */
static void every_strategy_keeps_its_blocks_activations_on_the_host(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
        for (int way = OFFLOAD_SAVE_ON_CPU; way < NACTIVATION_OFFLOAD; way++)
            for (int full = 0; full < 2; full++) {
                struct plan p;
                struct ledger away;
                plan_of(&p, "gpt2", 5, 2, cells[c].s, cells[c].d, DT_FP32);
                p.kernels = KERNELS_DPX;
                p.accumulation = 3;
                p.activation_offload = (enum activation_offload)way;
                p.recompute = full ? RECOMPUTE_FULL : RECOMPUTE_NONE;
                lowered(&p, 1, &s);
                int64_t keeps = s.program.piece[full ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK].saved;
                struct moved got = moved(SCHED_STEADY);
                peak_in(way == OFFLOAD_SAVE_ON_CPU ? IN(SPACE_HOST) : IN(SPACE_PINNED), &away);
                if (full)           /* a block's input */
                    assert_int_equal(keeps, p.micro_batch * p.seq * p.model.hidden * 4);
                assert_int_equal(got.up, 3 * 5 * keeps);
                assert_int_equal(got.down, got.up);
                if (way == OFFLOAD_SAVE_ON_CPU || cells[c].d == DIALECT_PAPER)
                    assert_int_equal(away.most[CAT_ACTIVATIONS], 5 * keeps);
                else if (full)
                    assert_int_equal(away.most[CAT_ACTIVATIONS], 5 * power(keeps));
                plan_free(&p);
            }
}

/* save_on_cpu holds the issuing thread; streams let the next block compute. */
static void only_blocking_copies_hold_the_issuing_thread(void **state)
{
    (void)state;
    for (int way = OFFLOAD_SAVE_ON_CPU; way < NACTIVATION_OFFLOAD; way++) {
        struct plan p;
        int holds = 0;
        plan_of(&p, "gpt2", 4, 2, STRAT_DDP, DIALECT_PAPER, DT_FP32);
        p.activation_offload = (enum activation_offload)way;
        lowered(&p, 0, &s);
        for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
            holds += s.ops[i].kind == OP_WAIT && !strcmp(s.ops[i].what, "activations copied");
        assert_true((holds > 0) == (way != OFFLOAD_STREAMS));
        plan_free(&p);
    }
}

/* One block's input alone is kept: 1 x seq x 4096 in bf16. */
static void keep_inputs(struct plan *p, int64_t seq, enum activation_offload way)
{
    plan_of(p, "llama-2-7b", 6, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p->kernels = KERNELS_DPX;
    p->seq = seq;
    p->recompute = RECOMPUTE_FULL;
    p->activation_offload = way;
    lowered(p, 0, &s);
    assert_int_equal(s.program.piece[PIECE_BLOCK_RECOMPUTED].saved, seq * 4096 * 2);
}

/* Vector 41: 4096 tokens are 33,554,432 bytes, and 2049 are 16,785,408, for which as much is pinned. */
static void save_on_cpu_pins_powers_of_two(void **state)
{
    (void)state;
    for (int64_t seq = 2049; seq <= 4096; seq += 2047) {
        struct ledger away;
        struct plan p;
        keep_inputs(&p, seq, OFFLOAD_SAVE_ON_CPU_PINNED);
        peak_in(IN(SPACE_PINNED), &away);
        assert_int_equal(away.most[CAT_ACTIVATIONS], 6 * (int64_t)33554432);
        plan_free(&p);
    }
}

/* Vector 42: torchtune's stash of five such tensors is 167,772,160 bytes of the device.  `streams` waits for the block before
 * instead: in issue order, where a copy's source is free once it is issued, what one block keeps is there. */
static void streams_hold_a_block_where_torchtunes_stash_holds_five_tensors(void **state)
{
    (void)state;
    const int64_t tensor = 33554432;
    struct ledger here, away;
    struct plan p;

    assert_int_equal(5 * tensor, 167772160);
    keep_inputs(&p, 4096, OFFLOAD_NOTHING);
    peak_in(IN(SPACE_DEVICE), &here);
    plan_free(&p);
    keep_inputs(&p, 4096, OFFLOAD_STREAMS);
    peak_in(IN(SPACE_DEVICE), &away);
    assert_int_equal(here.most[CAT_ACTIVATIONS] - away.most[CAT_ACTIVATIONS], (6 - 1) * tensor);
    plan_free(&p);
}

/* recompute "offload": 3 of 5 blocks with every second one recomputed; b * s * h numbers each, in powers of two. */
static void only_inputs_of_recomputed_blocks_leave(void **state)
{
    (void)state;
    struct plan p;
    struct ledger away;

    plan_of(&p, "gpt2", 5, 2, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.recompute = RECOMPUTE_OFFLOAD;
    p.recompute_interval = 2;
    lowered(&p, 0, &s);
    int64_t input = p.micro_batch * p.seq * p.model.hidden * 4;
    peak_in(IN(SPACE_PINNED), &away);
    assert_int_equal(moved(SCHED_STEADY).down, 3 * input);
    assert_int_equal(away.peak.bytes, 3 * power(input));
    plan_free(&p);
}

/* What a block with experts is handed is one tensor as well: bf16 of each of gpt_oss's 3, whose masks stay on the device. */
static void a_mixtures_inputs_leave_as_others_do(void **state)
{
    const char *const models[] = { "gpt-oss-20b", "mixtral-8x7b", "qwen3-30b-a3b" };
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        plan_of(&p, models[i], 3, 4, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.kernels = KERNELS_TORCH_EAGER;
        p.recompute = RECOMPUTE_OFFLOAD;
        assert_int_equal(plan_check(&p, "plan"), 0);
        lowered(&p, 0, &s);
        assert_int_equal(moved(SCHED_STEADY).down, 3 * p.micro_batch * p.seq * p.model.hidden * 2);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinned_memory_comes_in_powers_of_two),
        cmocka_unit_test(llama_7b_takes_what_the_vectors_say),
        cmocka_unit_test(shards_go_up_in_fp32_once_a_pass),
        cmocka_unit_test(states_come_for_the_step_alone),
        cmocka_unit_test(states_and_activations_never_stand_together),
        cmocka_unit_test(host_memory_is_summed_tensor_by_tensor),
        cmocka_unit_test(accumulation_adds_on_the_host),
        cmocka_unit_test(the_cpu_steps_after_the_copies_and_before_the_next_forward),
        cmocka_unit_test(every_strategy_keeps_its_blocks_activations_on_the_host),
        cmocka_unit_test(only_blocking_copies_hold_the_issuing_thread),
        cmocka_unit_test(only_inputs_of_recomputed_blocks_leave),
        cmocka_unit_test(a_mixtures_inputs_leave_as_others_do),
        cmocka_unit_test(save_on_cpu_pins_powers_of_two),
        cmocka_unit_test(streams_hold_a_block_where_torchtunes_stash_holds_five_tensors),
    };
    int rc = cmocka_run_group_tests_name("model/offload", tests, NULL, NULL);

    schedules_free(&s);
    return rc;
}
