/* Recorded modules: their steps held against PyTorch's trackers (tests/golden/module/record_peaks.py), the arithmetic of their sizes, and what files
 * that are wrong are told. */
#include "tests/model/recorded_steps.h"

#include "base/fail.h"
#include "model/arch/recorded.h"
#include "model/arch/recorded_size.h"
#include "model/arch/sample.h"

/* Of the peak.  The trackers count what is allocated as dpx does, in blocks of 512 bytes: what differs is the batch and the seed of backward. */
#define WITHIN 1e-4
static int worst_bytes;

static void check_peak(const struct step *s)
{
    int64_t got = s->ledger.phase[SCHED_STEADY].bytes;
    char why[256];

    if (!schedules_check(&s->schedules, why, sizeof why))
        fail_msg("%s: %s", s->name, why);
    int64_t want = json_integer_value(json_object_get(json_object_get(s->line, "steady"), "peak_total"));

    if (want <= 0 || fabs((double)(got - want)) > WITHIN * (double)want)
        fail_msg("%s: %lld, PyTorch counts %lld (%+.4f %%)", s->name, (long long)got, (long long)want, 100 * (double)(got - want) / (double)want);
    worst_bytes = abs((int)(got - want)) > worst_bytes ? abs((int)(got - want)) : worst_bytes;
}

static void peaks_of_recorded_modules_are_the_trackers(void **state)
{
    (void)state;
    assert_true(each_line("tests/golden/module/peaks.jsonl", check_peak) >= 65);
    print_message("the largest difference is %d bytes\n", worst_bytes);
}

/* ---- sizes ---- */

static int64_t at(const char *text, int64_t b, int64_t s)
{
    struct recorded r = { 0 };
    struct rec_size z;
    json_t *j = json_string(text);
    int64_t out = -2;
    char said[2000];

    fail_capture(said, sizeof said);
    if (recorded_read_size(&r, j, "it", &z) == 0 && recorded_at(&r, z, b, s, &out) < 0)
        out = -1;
    fail_capture(NULL, 0);
    json_decref(j);
    free(r.terms);
    return out;
}

static void sizes_are_polynomials(void **state)
{
    (void)state;
    assert_int_equal(at("3072*b*s+8*s", 2, 10), 3072 * 20 + 80);
    assert_int_equal(at("b", 7, 1), 7);
    assert_int_equal(at("12", 7, 1), 12);
    assert_int_equal(at("s^2*b", 3, 5), 75);
    assert_int_equal(at("-2*b+100", 7, 1), 86);
    assert_int_equal(at("3*b*s^2/256", 4, 32), 3 * 4 * 1024 / 256);
    assert_int_equal(at("s/2+s/2", 1, 3), 3);               /* halves that add up to a whole */
}

static void sizes_that_are_none_are_refused(void **state)
{
    static const char *const wrong[] = { "", "b*", "*b", "b**s", "x", "3 * b", "b^9", "b^0", "b/0", "3*4", "99999999999999999999", "b*s/99999999999999", "+", "b+" };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(at(wrong[i], 1, 1), -2);
}

static void sizes_have_no_value_where_they_are_not_whole_or_too_large(void **state)
{
    (void)state;
    assert_int_equal(at("s/2", 1, 3), -1);
    assert_int_equal(at("b-10", 3, 1), -1);
    assert_int_equal(at("b^8*s^8", 1 << 20, 1 << 20), -1);
    assert_int_equal(at("1152921504606846976*b", 2, 1), -1);        /* 2^60 */
    assert_int_equal(at("1152921504606846976*b", 1, 1), (int64_t)1 << 60);
}

/* ---- files ---- */

/* Of one unit with one weight; % stands where a test changes something. */
#define KERNEL(does) "{'op':'mm','class':'gemm','product':[1,'b*s',4,4],'bytes':'8*b*s','does':[" does "]}"
#define FILE_OF(head, tensors, units, first, unit) FILE_OF_SIZE(head, "'least':1,'step':1", tensors, units, first, unit)
#define FILE_OF_SIZE(head, size, tensors, units, first, unit) \
    "{" head ",'name':'m','size':{" size "},'tensors':[" tensors "],'units':[" units "],'programs':[{'precision':'fp32','recompute':'none'," \
    "'units':['a'],'pieces':{'first':{'forward':[" first "],'backward':[]},'a':" unit ",'last':{'forward':[],'backward':[]}}}]}"
#define W "['u.w',[4,4]]"
#define U "['u','Linear']"
#define A "{'forward':[" KERNEL("['+',0,'16*b*s']") "],'backward':[" KERNEL("['+',1,64],['=','.w',1],['-',0]") "]}"

static int reads(const char *text, struct model *m, char *said, size_t size)
{
    char *json = strdup(text);
    int rc;

    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *doc = json_loads(json, 0, NULL);
    assert_non_null(doc);
    fail_capture(said, size);
    rc = model_from_config(doc, "m.json", m);
    fail_capture(NULL, 0);
    json_decref(doc);
    free(json);
    return rc;
}

static void a_file_by_hand_is_a_model(void **state)
{
    struct model m;
    char said[2000] = "";

    (void)state;
    assert_int_equal(reads(FILE_OF("'dpx_model':1", W, U, "", A), &m, said, sizeof said), 0);
    assert_int_equal(m.params, 16);
    assert_int_equal(m.layers, 1);
    assert_int_equal(m.tensors[0].block, 0);
    const struct rec_program *g = recorded_program(m.recorded, "fp32", REC_NOTHING, false);
    assert_non_null(g);
    const struct rec_piece *p = &m.recorded->pieces[g->kind[g->of_unit[0]]];
    const struct rec_move *saved = &m.recorded->moves[m.recorded->kernels[p->kernel0[0]].move0];
    const struct rec_move *grad = &m.recorded->moves[m.recorded->kernels[p->kernel0[1]].move0];
    assert_int_equal(saved->mem, REC_ACTIVATION);           /* forward leaves it */
    assert_int_equal(grad->mem, REC_GRADIENT);              /* it is handed out */
    model_free(&m);
}

static void a_sample_is_what_the_file_says(void **state)
{
    static const struct { const char *of, *text, *rate; double of_thousand; } said[] = {
        { "'of':'tokens'", "100 tokens", "tokens/s", 1000 }, { "'of':'side'", "100 x 100", "samples/s", 10 }, { "'of':'size'", "size 100", "samples/s", 10 },
        { "'least':1", "size 100", "samples/s", 10 } };

    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct model m;
        char file[1000], why[2000] = "";
        snprintf(file, sizeof file, FILE_OF_SIZE("'dpx_model':1", "%s", W, U, "", A), said[i].of);
        assert_int_equal(reads(file, &m, why, sizeof why), 0);
        assert_string_equal(sample_text(&m, 100).s, said[i].text);
        assert_string_equal(sample_rate_unit(&m), said[i].rate);
        assert_true(fabs(sample_rate(&m, 100, 1000) - said[i].of_thousand) < 1e-9);
        model_free(&m);
    }
}

/* Six units of one weight each, whose programs are a, b, c, c, c, c: products of 1, 10 and 100 columns. */
#define PIECE_OF(n) "{'forward':[{'op':'mm','class':'gemm','product':[1,'b*s'," n ",4],'bytes':8,'does':[['+',0,'16*b*s']]}]," \
    "'backward':[{'op':'mm','class':'gemm','product':[1,'b*s'," n ",4],'bytes':8,'does':[['+',1,64],['=','.w',1],['-',0]]}]}"
#define SIX "{'dpx_model':1,'name':'six','size':{'of':'tokens'}," \
    "'tensors':[['u0.w',[4,4]],['u1.w',[4,4]],['u2.w',[4,4]],['u3.w',[4,4]],['u4.w',[4,4]],['u5.w',[4,4]],['out',[4]]]," \
    "'units':[['u0','L'],['u1','L'],['u2','L'],['u3','L'],['u4','L'],['u5','L']],'programs':[{'precision':'fp32','recompute':'none'," \
    "'units':['a','b','c','c','c','c'],'pieces':{'first':{'forward':[],'backward':[]},'last':{'forward':[],'backward':[]}," \
    "'a':" PIECE_OF("1") ",'b':" PIECE_OF("10") ",'c':" PIECE_OF("100") "}}]}"

static int add_flops(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    (void)iteration;
    *(double *)arg += o->kind == OP_COMPUTE ? s->spans[o->u.compute.span].flops : 0;
    return 0;
}

/* Whatever is a repeat, each unit runs its own program: forward and backward of 1 + 10 + 4 x 100 columns. */
static void each_unit_runs_its_own_program(void **state)
{
    static const char *const strategies[] = { "fsdp", "ddp", "zero1" };
    struct model m;
    char said[2000] = "";

    (void)state;
    assert_int_equal(reads(SIX, &m, said, sizeof said), 0);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct plan p;
        struct schedules z = { 0 };
        double flops = 0;
        json_t *plan = json_pack("{s:i, s:o, s:s, s:s, s:s, s:i, s:i, s:s}", "dpx_plan", 1, "model", model_to_config(&m), "cluster", "8xh100", "strategy", strategies[i],
                                 "dialect", "torch", "seq", 64, "micro_batch", 2, "precision", "fp32");
        assert_int_equal(plan_from_json(plan, "six", &p), 0);
        assert_int_equal(lower(&p, 0, &z), 0);
        sched_walk(&z, SCHED_STEADY, add_flops, &flops);
        assert_close(flops, 2 * 2.0 * (2 * 64) * 4 * (1 + 10 + 4 * 100), 1e-12);
        schedules_free(&z);
        plan_free(&p);
        json_decref(plan);
    }
    model_free(&m);
}

/* ---- a loss that is computed outside of the module ---- */

/* Two units, and a head of two kernels in each pass; % is where its `loss` stands. */
#define K(name) "{'op':'" name "','class':'elementwise','bytes':8}"
#define APART "{'dpx_model':1,'name':'apart','size':{'of':'tokens'},'tensors':[['u0.w',[4,4]],['u1.w',[4,4]],['out',[4]]]," \
    "'units':[['u0','L'],['u1','L']],'programs':[{'precision':'fp32','recompute':'none','units':['a','a'],'pieces':{" \
    "'first':{'forward':[],'backward':[]},'a':" PIECE_OF("1") ",'last':{%s'forward':[" K("out") "," K("loss") "],'backward':[" K("loss") "," K("out") "]}}}]}"

struct begun { char order[8]; int n; };

/* Of backward's first entries: kernels (k), and gathers of units (g). */
static int add_begun(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct begun *b = arg;

    (void)s;
    (void)iteration;
    if (o->phase == PHASE_BACKWARD && b->n < 3 && (o->kind == OP_COMPUTE || (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_GATHER)))
        b->order[b->n++] = o->kind == OP_COMPUTE ? 'k' : 'g';
    return 0;
}

/* FSDP2's root gathers the last unit ahead when backward comes to its module's output: behind the loss. */
static void the_root_gathers_ahead_behind_the_loss(void **state)
{
    static const struct { const char *loss, *order; } of[] = { { "", "gkg" }, { "'loss':[1,1],", "kgk" }, { "'loss':[2,2],", "kgk" } };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct model m;
        struct plan p;
        struct schedules z = { 0 };
        struct begun b = { 0 };
        char file[4000], said[2000] = "";
        snprintf(file, sizeof file, APART, of[i].loss);
        assert_int_equal(reads(file, &m, said, sizeof said), 0);
        json_t *plan = json_pack("{s:i, s:o, s:s, s:s, s:s, s:i, s:i, s:s}", "dpx_plan", 1, "model", model_to_config(&m), "cluster", "8xh100", "strategy", "fsdp",
                                 "dialect", "torch", "seq", 64, "micro_batch", 2, "precision", "fp32");
        assert_int_equal(plan_from_json(plan, "apart", &p), 0);
        assert_int_equal(lower(&p, 0, &z), 0);
        sched_walk(&z, SCHED_STEADY, add_begun, &b);
        assert_string_equal(b.order, of[i].order);
        schedules_free(&z);
        plan_free(&p);
        json_decref(plan);
        model_free(&m);
    }
}

static void a_wrong_loss_is_refused(void **state)
{
    static const struct { const char *loss, *said; } wrong[] = {
        { "'loss':1,", "expected [kernels of forward, kernels of backward]" }, { "'loss':[1],", "expected [kernels of forward, kernels of backward]" },
        { "'loss':[1,3],", "loss: expected a number of its kernels" }, { "'loss':[-1,1],", "loss: expected a number of its kernels" } };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct model m;
        char file[4000], said[2000] = "";
        snprintf(file, sizeof file, APART, wrong[i].loss);
        assert_int_equal(reads(file, &m, said, sizeof said), -1);
        if (!strstr(said, wrong[i].said))
            fail_msg("expected \"%s\" in: %s", wrong[i].said, said);
    }
}

/* ---- buffers ---- */

struct sent { char text[400]; };

static int add_sent(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sent *to = arg;

    (void)s;
    (void)iteration;
    if (o->kind == OP_COLL && (o->u.coll.op == COLL_BROADCAST || o->u.coll.op == COLL_SCATTER))
        snprintf(to->text + strlen(to->text), sizeof to->text - strlen(to->text), " %s %lld", dtype_name(o->u.coll.dtype), (long long)o->u.coll.elems);
    return 0;
}

/* DataParallel's replicas get them in each forward, dtypes in the order of c10::ScalarType (torch/csrc/utils/tensor_flatten.cpp).  Two tables: 7 codes,
 * 9 int8, 11 places, 1 count, 3 x 64 scales, 13 doubles, 64 x 5 complex numbers, 64 truths and 2 x 64 of bf16 each.  The batch is 2 x 16 ids and 2
 * labels for each of four, whose losses' gradients come last. */
static void replicas_get_buffers_by_dtype(void **state)
{
    json_t *model = json_load_file("tests/golden/module/tables.json", 0, NULL), *plan = json_pack("{s:i, s:o, s:s, s:s, s:s, s:i, s:i, s:s}", "dpx_plan", 1,
        "model", model, "cluster", "4xh100", "strategy", "dp", "dialect", "torch", "seq", 16, "micro_batch", 2, "precision", "fp32");
    struct sent got = { "" };
    struct schedules z = { 0 };
    struct plan p;
    char want[400];

    (void)state;
    assert_non_null(model);
    json_object_set_new(json_array_get(json_object_get(model, "programs"), 1), "precision", json_string("fp32"));
    assert_int_equal(plan_from_json(plan, "tables", &p), 0);
    assert_int_equal(lower(&p, 0, &z), 0);
    snprintf(want, sizeof want, " uint8 %d fp32 %lld uint8 14 int8 18 int32 22 int64 2 fp32 384 fp64 26 fp32 1280 uint8 128 bf16 256 fp32 4", 4 * 8 * (2 * 16 + 2),
             (long long)p.model.params);
    sched_walk(&z, SCHED_STEADY, add_sent, &got);
    assert_string_equal(got.text, want);
    schedules_free(&z);
    plan_free(&p);
    json_decref(plan);
}

/* ---- pipelines ---- */

static void modules_that_are_no_chain_are_not_cut(void **state)
{
    static const struct { const char *file, *kind; int seq; const char *cut, *said; } wrong[] = {
        { "nanogpt", "1f1b", 64, NULL, "nanogpt is not cut: it shares a parameter" },
        { "tables", "gpipe", 16, NULL, "tables is not cut: it has buffers" },
        { "chain", "interleaved", 32, NULL, "under gpipe and 1f1b alone" },
        { "chain", "1f1b", 32, "h.1 reads what a table makes", "chain is not cut: h.1 reads what a table makes" },
        { "chain", "1f1b", 32, "", "record it again" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char path[100], said[2000] = "";
        struct plan p;
        snprintf(path, sizeof path, "tests/golden/module/%s.json", wrong[i].file);
        json_t *model = json_load_file(path, 0, NULL), *program, *plan;
        size_t k;
        assert_non_null(model);
        json_array_foreach(json_object_get(model, "programs"), k, program)
            if (wrong[i].cut && wrong[i].cut[0])
                json_object_set_new(program, "cut", json_string(wrong[i].cut));
            else if (wrong[i].cut)
                json_object_del(program, "cut");
        plan = json_pack("{s:i, s:o, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:{s:i, s:s}}", "dpx_plan", 1, "model", model, "cluster", "4xh100", "strategy", "fsdp",
                         "dialect", "torch", "seq", wrong[i].seq, "micro_batch", 2, "accumulation", 4, "precision", "bf16", "parallel", "pipeline", 2,
                         "pipeline_schedule", wrong[i].kind);
        fail_capture(said, sizeof said);
        assert_int_equal(plan_from_json(plan, "p.json", &p), -1);
        fail_capture(NULL, 0);
        if (!strstr(said, wrong[i].said))
            fail_msg("expected \"%s\" in: %s", wrong[i].said, said);
        json_decref(plan);
    }
}

#define GPT2 "{'model_type':'gpt2','architectures':['GPT2LMHeadModel'],'n_layer':3,'n_embd':256,'n_head':4,'n_inner':2048,'n_positions':1024," \
    "'vocab_size':8192,'attn_pdrop':0.0,'embd_pdrop':0.0,'resid_pdrop':0.0,'tie_word_embeddings':false}"

static json_t *quoted(const char *text)
{
    char json[600];

    snprintf(json, sizeof json, "%s", text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return json_loads(json, 0, NULL);
}

static int64_t peak_of_stage(bool recorded, const char *strategy, const char *kind, const char *recompute, int64_t rank)
{
    bool fsdp = !strcmp(strategy, "fsdp");
    json_t *model = recorded ? json_string("tests/golden/module/gpt2.json") : quoted(GPT2);
    json_t *plan = json_pack("{s:i, s:o, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:{s:i, s:s, s:i, s:i}}", "dpx_plan", 1, "model", model, "cluster", "1x4xh100", "strategy",
                             strategy, "dialect", "torch", "seq", 512, "micro_batch", 2, "accumulation", 4, "precision", fsdp ? "bf16" : "fp32", "recompute", recompute,
                             "parallel", "pipeline", 2, "pipeline_schedule", kind, "first_stage_less_layers", 0, "last_stage_less_layers", 0);
    struct schedules z = { 0 };
    struct ledger l;
    struct plan p;
    char why[256];

    if (!recorded)
        json_object_set_new(plan, "kernels", json_string("torch-sdpa"));
    assert_int_equal(plan_from_json(plan, "p.json", &p), 0);
    assert_int_equal(lower(&p, rank, &z), 0);
    if (!schedules_check(&z, why, sizeof why))
        fail_msg("%s", why);
    ledger_run(&z, &l);
    int64_t peak = l.phase[SCHED_STEADY].bytes;
    schedules_free(&z);
    plan_free(&p);
    json_decref(plan);
    return peak;
}

/* GPT-2 as transformers has it, recorded, and as the built-in family. */
static void stages_of_a_recording_are_a_familys(void **state)
{
    static const char *const strategies[] = { "fsdp", "ddp" }, *const kinds[] = { "gpipe", "1f1b" }, *const recomputes[] = { "none", "full" };

    (void)state;
    for (int i = 0; i < 16; i++) {
        const char *strategy = strategies[i & 1], *kind = kinds[i >> 1 & 1], *recompute = recomputes[i >> 2 & 1];
        int64_t rank = i >> 3 ? 2 : 0, got = peak_of_stage(true, strategy, kind, recompute, rank), want = peak_of_stage(false, strategy, kind, recompute, rank);
        if (llabs(got - want) > 512)
            fail_msg("%s, %s, recompute %s, rank %lld: %lld, the family %lld", strategy, kind, recompute, (long long)rank, (long long)got, (long long)want);
    }
}

/* ---- tensors that train, and get no gradient ---- */

static int plan_of_spare(const char *strategy, const char *dialect, const char *ddp, struct plan *p, char *said, size_t size)
{
    json_t *plan = json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:s}", "dpx_plan", 1, "model", "tests/golden/module/spare.json", "cluster", "2xh100",
                             "strategy", strategy, "dialect", dialect, "seq", 64, "micro_batch", 2, "precision", "bf16");

    if (ddp)
        json_object_set_new(plan, "ddp", json_loads(ddp, 0, NULL));
    fail_capture(said, size);
    int rc = plan_from_json(plan, "spare", p);
    fail_capture(NULL, 0);
    json_decref(plan);
    return rc;
}

struct reduced { int n; int64_t elems[8]; };

static int add_reduced(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct reduced *r = arg;

    (void)s;
    (void)iteration;
    if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_REDUCE && r->n < 8)
        r->elems[r->n++] = o->u.coll.elems;
    return 0;
}

/* PyTorch 2.15's reducer on two ranks, by a communication hook: buckets of 36 and of 1 of the 37 tensors, those without a gradient among the first
 * (4,331,264 numbers); .grad of 10 stays None, and AdamW has states of 27. */
static void tensors_without_a_gradient_are_in_buckets_alone(void **state)
{
    const int64_t d = 256, none = 4 * (3 * d * d + 3 * d) + 2 * d * d + 2 * d, head = 8192 * d, all = 4331264 + head;
    struct reduced r = { 0 };
    struct schedules z = { 0 };
    struct ledger l;
    struct plan p;
    char said[2000] = "";

    (void)state;
    assert_int_equal(plan_of_spare("ddp", "torch", "{\"find_unused_parameters\": true}", &p, said, sizeof said), 0);
    assert_int_equal(p.model.params, all);
    assert_int_equal(p.model.trainable, all - none);
    assert_int_equal(lower(&p, 0, &z), 0);
    sched_walk(&z, SCHED_STEADY, add_reduced, &r);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.elems[0], 4331264);
    assert_int_equal(r.elems[1], head);
    assert_int_equal(r.elems[2], 37);                       /* which of them were used */
    ledger_run(&z, &l);
    int64_t states = l.phase[SCHED_STEADY].by[CAT_OPTIMIZER];
    assert_true(states >= 8 * (all - none) && states < 8 * (all - none) + 27 * 1024 * 2);
    schedules_free(&z);
    plan_free(&p);
}

static void tensors_without_a_gradient_are_told(void **state)
{
    static const struct { const char *strategy, *dialect, *ddp, *said; } wrong[] = {
        { "ddp", "torch", NULL, "ddp.find_unused_parameters: 10 tensors of spare get no gradient (h.0.adapter.weight first)" },
        { "zero1", "torch", NULL, "ddp.find_unused_parameters: 10 tensors" },
        { "ddp", "torch", "{\"find_unused_parameters\": true, \"static_graph\": true}", "set it to false" },
        { "dp", "torch", NULL, "freeze them in the module" },
        { "fsdp", "torch-fsdp1", NULL, "what fsdp/torch-fsdp1 does with them is not known" },
        { "zero2", "deepspeed", NULL, "what zero2/deepspeed does with them is not known" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct plan p;
        char said[2000] = "";
        assert_int_equal(plan_of_spare(wrong[i].strategy, wrong[i].dialect, wrong[i].ddp, &p, said, sizeof said), -1);
        if (!strstr(said, wrong[i].said))
            fail_msg("expected \"%s\" in: %s", wrong[i].said, said);
    }
}

/* 4 groups share 10 rows: each has 3, for the fullest decides; FLOPs are those of 10. */
static void groups_of_a_product_share_its_rows(void **state)
{
    struct model m;
    char said[2000] = "";

    (void)state;
    assert_int_equal(reads(FILE_OF("'dpx_model':1", W, U, "{'op':'_grouped_mm','class':'gemm','product':[4,'b*s',16,8],'grouped':'m','bytes':1}", A), &m, said, sizeof said), 0);
    double whole = recorded_flops(m.recorded, 10, REC_NOTHING);
    model_free(&m);
    assert_int_equal(reads(FILE_OF("'dpx_model':1", W, U, "{'op':'_grouped_mm','class':'gemm','bytes':1}", A), &m, said, sizeof said), 0);
    assert_true(fabs(whole - recorded_flops(m.recorded, 10, REC_NOTHING) - 2.0 * 10 * 16 * 8) < 1e-6);
    assert_true(recorded_rough((enum rec_class)m.recorded->kernels[0].class) > 0);       /* what it computes is not said */
    model_free(&m);
}

static void a_wrong_file_is_told_what_and_where(void **state)
{
    static const struct { const char *file, *said; } wrong[] = {
        { FILE_OF("'dpx_model':2", W, U, "", A), "version 2; this dpx reads version 1" },
        { FILE_OF("'dpx_model':1,'extra':1", W, U, "", A), "extra: no key of a recorded model" },
        { FILE_OF_SIZE("'dpx_model':1", "'of':'words'", W, U, "", A), "size: of: expected" },
        { FILE_OF_SIZE("'dpx_model':1", "'from':1", W, U, "", A), "size: from: expected of, only" },
        { FILE_OF("'dpx_model':1", "['u.w',[0,4]]", U, "", A), "tensors: u.w: shape" },
        { FILE_OF("'dpx_model':1", "['u.w',[1073741824,1073741824,8]]", U, "", A), "2^60" },
        { FILE_OF("'dpx_model':1", "['u.w',[4,4],'cold']", U, "", A), "\"frozen\"" },
        { FILE_OF("'dpx_model':1", "['u.w',[4,4]],['v.w',[4]],['u.w',[4,4]]", U, "", A), "tensors: u.w stands there twice" },
        { FILE_OF("'dpx_model':1,'unused':['u.x']", W, U, "", A), "unused: row 0: expected the name of a tensor" },
        { FILE_OF("'dpx_model':1,'unused':['u.w','u.w']", W, U, "", A), "unused: row 1: this tensor stands twice" },
        { FILE_OF("'dpx_model':1", W, "['v','Linear']", "", A), "v has no tensor" },
        { FILE_OF("'dpx_model':1", W, "['u','Linear','never']", "", A), "units: u: expected \"late\" or \"forward\"" },
        { FILE_OF("'dpx_model':1,'kept':[0]", W, U, "", A), "kept: number 0: expected bytes" },
        { FILE_OF("'dpx_model':1,'buffers':[['x',[2],'float7']]", W, U, "", A), "buffers: row 0: expected [name, shape, dtype]" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[],'backward':[" KERNEL("['-',3]") "]}"), "that is not there" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[" KERNEL("['+',0,1],['+',0,1]") "],'backward':[]}"), "comes twice" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[" KERNEL("['+',0,1],['-',0],['-',0]") "],'backward':[]}"), "that is not there" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[],'backward':[" KERNEL("['+',0,1],['=','.x',0]") "]}"), "\".x\" is no tensor of its unit" },
        { FILE_OF("'dpx_model':1", "['u.w',[4,4],'frozen'],['u.b',[4]]", U, "", "{'forward':[],'backward':[" KERNEL("['+',0,1],['=','.w',0]") "]}"),
          "\".w\" is frozen: it gets no gradient" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[" KERNEL("['+',0,1]") "],'backward':[]}"), "some never go" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[" KERNEL("['-forward','b']") "],'backward':[]}"), "more go than come" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[" KERNEL("['-backward',1]") "],'backward':[" KERNEL("['+',0,1]") "]}"), "some go before they come" },
        { FILE_OF("'dpx_model':1", W, U, "{'op':'x','class':'sum','bytes':1}", A), "class: expected gemm" },
        { FILE_OF("'dpx_model':1", W, U, "{'op':'x','class':'gemm','grouped':'m','bytes':1}", A), "grouped: expected" },
        { FILE_OF("'dpx_model':1", W, U, "{'op':'x','class':'copy','bytes':'c*d'}", A), "expected a polynomial" },
        { FILE_OF("'dpx_model':1", W, U, "{'op':'x','class':'copy','bytes':-1}", A), "a size is from 0 to 2^60" },
        { FILE_OF("'dpx_model':1", W, U, "{'op':'x','class':'norm','product':[1,2,3,4],'bytes':1}", A), "only gemm and conv" },
        { FILE_OF("'dpx_model':1", W, U, "", "{'forward':[],'backward':[],'hooks':{}}"), "hooks: only a program of stage3 has them" },
        { FILE_OF("'dpx_model':1,'shared':[['v.w','u.x']]", W, U, "", A), "shared: row 0: expected [another name, the name of a tensor]" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct model m;
        char said[2000] = "";
        assert_int_equal(reads(wrong[i].file, &m, said, sizeof said), -1);
        if (!strstr(said, wrong[i].said) || strncmp(said, "m.json: ", 8))
            fail_msg("expected \"%s\" in: %s", wrong[i].said, said);
    }
}

/* ---- DeepSpeed's stage 3: the lists of collectives are in test_collectives.c (golden/module/deepspeed) ---- */

static int plan_of_stage_3(json_t *model, struct plan *p, char *said, size_t size)
{
    json_t *plan = json_pack("{s:i, s:o, s:s, s:s, s:s, s:i, s:i, s:s}", "dpx_plan", 1, "model", model, "cluster", "2xh100", "strategy", "zero3", "dialect",
                             "deepspeed", "seq", 64, "micro_batch", 2, "precision", "bf16");
    struct schedules z = { 0 };

    fail_capture(said, size);
    int rc = plan_from_json(plan, "z3", p);
    if (rc == 0) {
        rc = lower(p, 0, &z);
        schedules_free(&z);
        plan_free(p);
    }
    fail_capture(NULL, 0);
    json_decref(plan);
    return rc;
}

/* The hooks of a pass of a piece of the program that was recorded under stage 3. */
static json_t *hooks_of(json_t *model, const char *piece, const char *pass)
{
    json_t *programs = json_object_get(model, "programs");
    size_t i = 0;

    while (!json_object_get(json_array_get(programs, i), "stage3"))
        i++;
    return json_object_get(json_object_get(json_object_get(json_object_get(json_array_get(programs, i), "pieces"), piece), "hooks"), pass);
}

static void hooks_of_stage_3_are_those_of_a_step(void **state)
{
    static const struct { const char *piece, *pass; int at; const char *hook, *said; } changes[] = {     /* in place of a hook; NULL: it goes */
        { "a", "forward", 0, "[0, \"fetch\", \".\"]", NULL },                                             /* what stands there */
        { "a", "forward", 0, "[9, \"fetch\", \".\"]", "expected the numbers of kernels in ascending order" },
        { "a", "forward", 0, "[0, \"fetch back\", \".\"]", "hooks: expected [kernel, kind, module]" },
        { "a", "forward", 0, NULL, "h.0 is released, and was not fetched" },
        { "a", "backward", 0, NULL, "h.5 is released, and was not fetched" },
        { "a", "backward", 4, NULL, "is not taken behind it" },
        { "a", "backward", 4, "[3, \"gradient\", \".c_ou.weight\"]", "is of no tensor of the unit" },
        { "first", "forward", 0, "[1, \"fetch\", \".\"]", "hooks: expected [kernel, kind, module]" },         /* of no unit */
    };
    struct plan p;
    char said[2000];

    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        json_t *model = json_load_file("tests/golden/module/nanogpt.json", 0, NULL), *list = hooks_of(model, changes[i].piece, changes[i].pass);
        if (changes[i].hook)
            json_array_set_new(list, (size_t)changes[i].at, json_loads(changes[i].hook, 0, NULL));
        else
            json_array_remove(list, (size_t)changes[i].at);
        said[0] = '\0';
        if (plan_of_stage_3(model, &p, said, sizeof said) != (changes[i].said ? -1 : 0) || (changes[i].said && !strstr(said, changes[i].said)))
            fail_msg("expected \"%s\" in: %s", changes[i].said ? changes[i].said : "nothing", said);
    }
    said[0] = '\0';
    assert_int_equal(plan_of_stage_3(json_load_file("tests/golden/module/dit.json", 0, NULL), &p, said, sizeof said), -1);
    assert_non_null(strstr(said, "record it with --stage3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_of_recorded_modules_are_the_trackers),
        cmocka_unit_test(sizes_are_polynomials),
        cmocka_unit_test(sizes_that_are_none_are_refused),
        cmocka_unit_test(sizes_have_no_value_where_they_are_not_whole_or_too_large),
        cmocka_unit_test(a_file_by_hand_is_a_model),
        cmocka_unit_test(a_sample_is_what_the_file_says),
        cmocka_unit_test(each_unit_runs_its_own_program),
        cmocka_unit_test(the_root_gathers_ahead_behind_the_loss),
        cmocka_unit_test(a_wrong_loss_is_refused),
        cmocka_unit_test(replicas_get_buffers_by_dtype),
        cmocka_unit_test(modules_that_are_no_chain_are_not_cut),
        cmocka_unit_test(stages_of_a_recording_are_a_familys),
        cmocka_unit_test(tensors_without_a_gradient_are_in_buckets_alone),
        cmocka_unit_test(tensors_without_a_gradient_are_told),
        cmocka_unit_test(groups_of_a_product_share_its_rows),
        cmocka_unit_test(a_wrong_file_is_told_what_and_where),
        cmocka_unit_test(hooks_of_stage_3_are_those_of_a_step),
    };

    return cmocka_run_group_tests_name("model/recorded", tests, NULL, NULL);
}
