/* phase_plan.c -- see phase_plan.h. */
#include "sim/phases/phase_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/duration.h"
#include "base/fail.h"

static const char *const wheres[] = { [WHERE_DEVICE] = "device", [WHERE_STATES_AWAY] = "states on host", [WHERE_HOST] = "host",
                                      [WHERE_WEIGHTS_AWAY] = "weights on host" };
static const char *const verbs[] = { "generate", "forward", "update", "hand_over" };

const char *role_where_name(enum role_where w) { return wheres[w]; }

const char *phase_does_name(enum phase_does d)
{
    static const char *const names[] = { "generates", "forward", "update", "hands over", "-" };

    return names[d];
}

/* ---- values ---- */

/* An object that is read: where it is, for messages, and its keys. */
struct reading { const char *file, *object; const json_t *j; };

static int check_keys(const struct reading *r, const char *const *known)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)r->j, key, v) {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i] && strncmp(key, "//", 2) != 0)
            return fail("%s: %s%s%.60s: unknown key", r->file, r->object, *r->object ? "." : "", key);
    }
    return 0;
}

static int wrong(const struct reading *r, const char *key, const char *want)
{
    return fail("%s: %s%s%s: must be %s", r->file, r->object, *r->object ? "." : "", key, want);
}

static int read_number(const struct reading *r, const char *key, double least, double *to)
{
    const json_t *v = json_object_get(r->j, key);

    if (!v)
        return 0;
    if (!json_is_number(v) || !(json_number_value(v) >= least) || json_number_value(v) > 1e15)
        return wrong(r, key, "a number, and not a negative one");
    *to = json_number_value(v);
    return 0;
}

static int read_count(const struct reading *r, const char *key, int64_t least, int64_t *to)
{
    const json_t *v = json_object_get(r->j, key);

    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > (int64_t)1 << 50)
        return wrong(r, key, least > 0 ? "a whole number above 0" : "a whole number, not negative");
    *to = json_integer_value(v);
    return 0;
}

static int read_flag(const struct reading *r, const char *key, bool *to)
{
    const json_t *v = json_object_get(r->j, key);

    if (v && !json_is_boolean(v))
        return wrong(r, key, "true or false");
    *to = v ? json_is_true(v) : *to;
    return 0;
}

static int word_of(const json_t *v, const char *const *words, int n)
{
    const char *s = json_string_value(v);

    for (int i = 0; s && i < n; i++)
        if (!strcmp(s, words[i]))
            return i;
    return -1;
}

static int read_where(const struct reading *r, const char *key, const json_t *v, int *to)
{
    int w = word_of(v, wheres, NWHERE);

    if (w < 0)
        return wrong(r, key, "\"device\", \"states on host\", \"weights on host\" or \"host\"");
    *to = w;
    return 0;
}

static int read_dtype(const struct reading *r, const char *key, bool narrow, enum dtype *to)
{
    const json_t *v = json_object_get(r->j, key);
    int t = v && json_is_string(v) ? dtype_parse(json_string_value(v)) : -1;

    if (!v)
        return 0;
    if (t != DT_BF16 && t != DT_FP16 && t != DT_FP32 && !(narrow && t == DT_FP8))
        return wrong(r, key, narrow ? "bf16, fp16, fp32 or fp8" : "bf16, fp16 or fp32: of quantised weights it is that of the rest, and \"quantization\" says how");
    *to = (enum dtype)t;
    return 0;
}

/* ---- roles ---- */

/* "0.11" or "0.11.2". */
static int read_version(const struct reading *r, int *to)
{
    const json_t *v = json_object_get(r->j, "version");
    int major, minor, read = 0;

    if (!v)
        return 0;
    if (!json_is_string(v) || sscanf(json_string_value(v), "%4d.%3d%n", &major, &minor, &read) != 2 || major < 0 || minor < 0 ||
        (json_string_value(v)[read] && json_string_value(v)[read] != '.'))
        return wrong(r, "version", "as \"0.11\"");
    *to = 1000 * major + minor;
    return 0;
}

static int read_driven(const struct reading *r, struct engine *e)
{
    static const char *const words[] = { [DRIVEN_PROCESS] = "process", [DRIVEN_WITHIN] = "within", [DRIVEN_ASYNC] = "async",
                                         [DRIVEN_SERVER] = "server" };
    const json_t *v = json_object_get(r->j, "driven");
    int w = v ? word_of(v, words, NDRIVEN) : (int)e->driven;
    bool overlaps = false;

    if (w < 0)
        return wrong(r, "driven", "\"process\", \"within\", \"async\" or \"server\"");
    if (read_flag(r, "async_scheduling", &overlaps) < 0)
        return -1;
    e->driven = (enum engine_driven)w;
    e->overlaps = json_object_get(r->j, "async_scheduling") ? overlaps : e->overlaps;
    return 0;
}

/* "fp8", "awq"; of "none" the weights are in `dtype`. */
static int read_codes(const struct reading *r, struct engine *e)
{
    const json_t *v = json_object_get(r->j, "quantization");
    const char *words[NCODES];

    for (int i = 0; i < NCODES; i++)
        words[i] = engine_codes_name((enum engine_codes)i);
    int w = v ? word_of(v, words, NCODES) : CODES_NONE;
    if (w < 0)
        return wrong(r, "quantization", "none, fp8 (a scale a tensor), fp8-block (128 x 128), awq or gptq (4 bits, groups of 128)");
    e->codes = (enum engine_codes)w;
    return 0;
}

static int read_engine(const struct reading *r, struct phase_role *to)
{
    static const char *const known[] = { "engine", "version", "model", "cluster", "tensor", "gpu_memory_utilization", "mem_fraction_static", "dtype",
                                         "kv_cache_dtype", "max_num_seqs", "max_num_batched_tokens", "block_size", "enforce_eager", "sleep",
                                         "own_process", "driven", "async_scheduling", "pipeline", "expert", "quantization", NULL };
    static const char *const engines[] = { [ENGINE_VLLM] = "vllm", [ENGINE_SGLANG] = "sglang" };
    int kind = word_of(json_object_get(r->j, "engine"), engines, NENGINE);
    int64_t sleep = 0;

    if (kind < 0)
        return fail("%s: %s.engine: vllm and sglang are planned; generation by transformers, TensorRT-LLM and others is not", r->file, r->object);
    if (check_keys(r, known) < 0)
        return -1;
    struct engine *e = &to->engine;
    const char *share = engine_share_name((enum engine_kind)kind), *other = engine_share_name(kind == ENGINE_VLLM ? ENGINE_SGLANG : ENGINE_VLLM);
    *e = engine_usual((enum engine_kind)kind);
    to->kind = ROLE_IS_ENGINE;
    to->model = json_object_get(r->j, "model");
    to->cluster = json_object_get(r->j, "cluster");
    if (json_object_get(r->j, other))
        return fail("%s: %s.%s: %s calls it %s", r->file, r->object, other, engine_kind_name(e->kind), share);
    if (read_version(r, &e->version) < 0 || read_count(r, "tensor", 1, &e->tensor) < 0 ||
        read_count(r, "pipeline", 1, &e->pipeline) < 0 || read_count(r, "expert", 1, &e->expert) < 0 || read_codes(r, e) < 0 || read_number(r, share, 0, &e->share) < 0 ||
        read_dtype(r, "dtype", false, &e->weights) < 0 || (e->kv = e->weights, read_dtype(r, "kv_cache_dtype", true, &e->kv)) < 0 ||
        read_count(r, "max_num_seqs", 1, &e->sequences) < 0 || read_count(r, "max_num_batched_tokens", 1, &e->batched_tokens) < 0 ||
        read_count(r, "block_size", 1, &e->block) < 0 || read_flag(r, "enforce_eager", &e->eager) < 0 || read_count(r, "sleep", 0, &sleep) < 0 ||
        read_flag(r, "own_process", &e->own_process) < 0 || read_driven(r, e) < 0)
        return -1;
    if (sleep > 2)
        return wrong(r, "sleep", "0 (it stays awake), 1 or 2");
    e->sleep = (int)sleep;
    return 0;
}

/* The name of other GPUs. */
static int read_place(const struct reading *r, const struct phase_plan *p, int *to)
{
    const json_t *v = json_object_get(r->j, "place");

    for (int i = 1; json_is_string(v) && i < p->nplaces; i++)
        if (!strcmp(p->place[i].name, json_string_value(v))) {
            *to = i;
            return 0;
        }
    return v ? wrong(r, "place", "a name of \"places\"") : 0;
}

static int read_anew(const struct reading *r, enum role_anew *to)
{
    static const char *const words[] = { [ANEW_NONE] = "none", [ANEW_STATES] = "states", [ANEW_ALL] = "all" };
    const json_t *v = json_object_get(r->j, "pageable");
    int w = v ? word_of(v, words, NANEW) : ANEW_NONE;

    if (w < 0)
        return wrong(r, "pageable", "\"none\", \"states\" or \"all\": what goes to host memory that is allocated anew each time");
    *to = (enum role_anew)w;
    return 0;
}

static int read_model(const struct reading *r, const struct phase_plan *p, struct phase_role *to)
{
    static const char *const known[] = { "train", "infer", "between", "empties_cache", "frees_gradients", "shares_weights", "own_process", "place", "unpadded",
                                         "packed", "pageable", "even_experts", NULL };
    const json_t *train = json_object_get(r->j, "train"), *infer = json_object_get(r->j, "infer"), *between = json_object_get(r->j, "between");
    int where = WHERE_DEVICE;

    if (check_keys(r, known) < 0)
        return -1;
    to->kind = train ? ROLE_TRAINS : ROLE_INFERS;
    to->plan = train ? train : infer;
    if (!to->plan || (train && infer) || (!json_is_object(to->plan) && !json_is_string(to->plan)))
        return fail("%s: %s: one of \"train\", \"infer\" and \"engine\"; the first two are a plan, a plan's file, or another role's name", r->file, r->object);
    if (between && read_where(r, "between", between, &where) < 0)
        return -1;
    to->between = (enum role_where)where;
    if (read_flag(r, "shares_weights", &to->shares) < 0 || read_flag(r, "own_process", &to->own_process) < 0 ||
        read_flag(r, "frees_gradients", &to->frees) < 0 || read_flag(r, "unpadded", &to->unpadded) < 0 ||
        read_flag(r, "packed", &to->packed) < 0 || read_flag(r, "even_experts", &to->even) < 0)
        return -1;
    if (read_anew(r, &to->anew) < 0)
        return -1;
    if (to->packed && !to->unpadded)
        return wrong(r, "packed", "of a role that is \"unpadded\"");
    if (to->shares && to->own_process)
        return wrong(r, "own_process", "left out of a role that shares weights: they are in another's process");
    if (read_place(r, p, &to->place) < 0)
        return -1;
    if (to->frees && to->kind != ROLE_TRAINS)
        return wrong(r, "frees_gradients", "of a role that trains");
    if (to->shares && to->kind != ROLE_INFERS)
        return wrong(r, "shares_weights", "of a role that infers");
    return read_flag(r, "empties_cache", &to->empties);
}

static int find_role(const struct phase_plan *p, const char *name)
{
    for (int i = 0; name && i < p->nroles; i++)
        if (!strcmp(p->role[i].name, name))
            return i;
    return -1;
}

/* "infer": "actor" is the plan of that role. */
static void follow_names(struct phase_plan *p)
{
    for (int i = 0; i < p->nroles; i++) {
        int of = p->role[i].plan ? find_role(p, json_string_value(p->role[i].plan)) : -1;
        if (of >= 0 && of != i && p->role[of].kind != ROLE_IS_ENGINE)
            p->role[i].plan = p->role[of].plan;
    }
}

static int read_places_of(const json_t *places, const char *file, struct phase_plan *p)
{
    const char *name;
    json_t *v;

    p->place[p->nplaces++].cluster = p->cluster;
    if (places && !json_is_object(places))
        return fail("%s: places: an object of clusters by name", file);
    json_object_foreach((json_t *)(uintptr_t)places, name, v) {
        if (p->nplaces == PHASE_PLACES || !*name || strlen(name) >= PHASE_NAME || (!json_is_string(v) && !json_is_object(v)))
            return fail("%s: places: at most %d clusters beside \"cluster\", with names of up to %d letters", file, PHASE_PLACES - 1, PHASE_NAME - 1);
        snprintf(p->place[p->nplaces].name, PHASE_NAME, "%s", name);
        p->place[p->nplaces++].cluster = v;
    }
    return 0;
}

static int read_roles(const json_t *roles, const char *file, struct phase_plan *p)
{
    const char *name;
    json_t *j;
    int engines = 0, trainers = 0;

    json_object_foreach((json_t *)(uintptr_t)roles, name, j) {
        char object[PHASE_NAME + 8];
        snprintf(object, sizeof object, "roles.%.39s", name);
        struct reading r = { file, object, j };
        if (p->nroles == PHASE_ROLES || strlen(name) >= PHASE_NAME || !json_is_object(j))
            return fail("%s: roles: at most %d objects with names of up to %d letters", file, PHASE_ROLES, PHASE_NAME - 1);
        struct phase_role *to = &p->role[p->nroles++];
        snprintf(to->name, sizeof to->name, "%s", name);
        if ((json_object_get(j, "engine") ? read_engine(&r, to) : read_model(&r, p, to)) < 0)
            return -1;
        engines += to->kind == ROLE_IS_ENGINE;
        trainers += to->kind == ROLE_TRAINS;
    }
    follow_names(p);
    if (engines > 1)
        return fail("%s: roles: more than one engine is not planned", file);
    return trainers > 0 ? 0 : fail("%s: roles: none of them trains: give one \"train\" with a plan", file);
}

/* ---- phases ---- */

static int read_role_of(const struct reading *r, const struct phase_plan *p, const char *key, bool engine, int *to)
{
    *to = find_role(p, json_string_value(json_object_get(r->j, key)));
    if (*to < 0)
        return wrong(r, key, "the name of a role");
    return (p->role[*to].kind == ROLE_IS_ENGINE) == engine ? 0 : wrong(r, key, engine ? "an engine" : "a role that trains or infers, not an engine");
}

static int read_places(const struct reading *r, const struct phase_plan *p, struct phase_step *s)
{
    json_t *v, *places = json_object_get(r->j, "where");
    const char *name;

    for (int i = 0; i < PHASE_ROLES; i++)
        s->where[i] = -1;
    if (places && !json_is_object(places))
        return wrong(r, "where", "an object of roles that train or infer");
    json_object_foreach(places, name, v) {
        int role = find_role(p, name);
        if (role < 0 || p->role[role].kind == ROLE_IS_ENGINE)
            return wrong(r, "where", "an object of roles that train or infer");
        if (read_where(r, "where", v, &s->where[role]) < 0)
            return -1;
    }
    return 0;
}

static int read_seconds(const struct reading *r, struct phase_step *s)
{
    const char *text = json_string_value(json_object_get(r->j, "time"));

    if (!text)
        return wrong(r, "time", "a text such as \"5s\" in a phase in which no role acts, as rewards by a function");
    return duration_parse("phases: time", text, &s->seconds);
}

/* Each verb has keys of its own: those of another one would change nothing. */
static int check_step_keys(const struct reading *r, const struct phase_step *s)
{
    static const char *const all[] = { "name", "generate", "forward", "update", "hand_over", "to", "micro_batch", "epochs", "bucket_bytes", "samples",
                                       "where", "time", "beside", "beside_forwards", "held_bytes", "with_before",
                                       "swaps_weights", "overlapped", NULL };
    static const char *const own[][10] = {
        [DOES_GENERATE]  = { "name", "where", "with_before", "generate", "samples" },
        [DOES_FORWARD]   = { "name", "where", "with_before", "forward", "samples", "micro_batch", "swaps_weights" },
        [DOES_UPDATE]    = { "name", "where", "with_before", "update", "samples", "epochs", "beside", "beside_forwards", "held_bytes" },
        [DOES_HAND_OVER] = { "name", "where", "with_before", "hand_over", "to", "bucket_bytes", "overlapped" },
        [DOES_NOTHING]   = { "name", "where", "with_before", "time" },
    };
    const char *key, *does = s->does == DOES_NOTHING ? "a phase in which no role acts" : verbs[s->does];
    json_t *v;

    if (check_keys(r, all) < 0)
        return -1;
    json_object_foreach((json_t *)(uintptr_t)r->j, key, v) {
        int i = 0;
        while (own[s->does][i] && strcmp(own[s->does][i], key) != 0)
            i++;
        if (!own[s->does][i] && strncmp(key, "//", 2) != 0)
            return fail("%s: %s.%s: %s does not take it%s", r->file, r->object, key, does,
                        s->does == DOES_UPDATE && !strcmp(key, "micro_batch") ? ": the plan of the role has micro_batch" : "");
    }
    return 0;
}

static int read_name(const struct reading *r, struct phase_step *s)
{
    const json_t *v = json_object_get(r->j, "name");
    const char *name = v ? json_string_value(v) : s->does == DOES_NOTHING ? "other" : verbs[s->does];

    if (!name || !*name || strlen(name) >= sizeof s->name)
        return fail("%s: %s.name: must be a text of 1 to %d letters", r->file, r->object, (int)sizeof s->name - 1);
    snprintf(s->name, sizeof s->name, "%s", name);
    return 0;
}

static int read_step(const struct reading *r, struct phase_plan *p, struct phase_step *s)
{
    int n = 0;

    s->role = s->to = s->beside = -1;
    s->epochs = s->forwards = 1;
    s->does = DOES_NOTHING;
    for (int i = 0; i < DOES_NOTHING; i++)
        if (json_object_get(r->j, verbs[i])) {
            s->does = (enum phase_does)i;
            n++;
        }
    if (n > 1)
        return fail("%s: %s: one of generate, forward, update and hand_over", r->file, r->object);
    if (check_step_keys(r, s) < 0 || read_name(r, s) < 0)
        return -1;
    if (n == 1 && read_role_of(r, p, verbs[s->does], s->does == DOES_GENERATE, &s->role) < 0)
        return -1;
    if (s->does == DOES_HAND_OVER && read_role_of(r, p, "to", true, &s->to) < 0)
        return -1;
    if (json_object_get(r->j, "beside") && read_role_of(r, p, "beside", false, &s->beside) < 0)
        return -1;
    if (s->beside >= 0 && p->role[s->beside].kind != ROLE_INFERS)
        return wrong(r, "beside", "a role that infers");
    if (s->beside < 0 && json_object_get(r->j, "held_bytes"))
        return wrong(r, "held_bytes", "a role \"beside\", during whose forward they are held");
    if (s->beside < 0 && json_object_get(r->j, "beside_forwards"))
        return wrong(r, "beside_forwards", "a role \"beside\", whose forwards they are");
    if (s->does == DOES_UPDATE && p->role[s->role].kind != ROLE_TRAINS)
        return wrong(r, "update", "a role that trains");
    if (s->does == DOES_NOTHING && read_seconds(r, s) < 0)
        return -1;
    if (read_flag(r, "with_before", &s->with_before) < 0 || read_flag(r, "swaps_weights", &s->swaps) < 0 || read_flag(r, "overlapped", &s->overlapped) < 0)
        return -1;
    if (s->swaps && p->role[s->role].kind != ROLE_TRAINS)
        return wrong(r, "swaps_weights", "false of a role that infers: it has weights of its own");
    if (s->with_before && s == p->step)
        return wrong(r, "with_before", "false of the first phase");
    if (s->beside >= 0 && p->role[s->beside].place != p->role[s->role].place)
        return wrong(r, "beside", "a role on the same GPUs");
    return read_count(r, "micro_batch", 1, &s->micro_batch) < 0 || read_count(r, "epochs", 1, &s->epochs) < 0 ||
           read_count(r, "bucket_bytes", 1, &s->bucket) < 0 || read_count(r, "held_bytes", 1, &s->held) < 0 ||
           read_count(r, "beside_forwards", 1, &s->forwards) < 0 || read_count(r, "samples", 1, &s->samples) < 0 ? -1 : read_places(r, p, s);
}

static int read_steps(const json_t *steps, const char *file, struct phase_plan *p)
{
    size_t i;
    json_t *j;

    json_array_foreach((json_t *)(uintptr_t)steps, i, j) {
        char object[40];
        snprintf(object, sizeof object, "phases[%zu]", i);
        if (p->nsteps == PHASE_STEPS || !json_is_object(j))
            return fail("%s: phases: at most %d objects", file, PHASE_STEPS);
        if (read_step(&(struct reading){ file, object, j }, p, &p->step[p->nsteps++]) < 0)
            return -1;
    }
    return p->nsteps > 0 ? 0 : fail("%s: phases: none is given", file);
}

/* ---- all of it ---- */

static int read_lengths(const struct reading *r, struct phase_plan *p)
{
    static const char *const known[] = { "mean", "longest", NULL };
    struct reading of = { r->file, "response", json_object_get(r->j, "response") };
    bool generates = false;

    for (int i = 0; i < p->nsteps; i++)
        generates |= p->step[i].does == DOES_GENERATE;
    if (!generates && !of.j)
        return 0;
    if (!json_is_object(of.j) || !json_object_get(of.j, "mean") || !json_object_get(of.j, "longest"))
        return fail("%s: response: say how long responses are, as { \"mean\": 700, \"longest\": 2048 }", r->file);
    if (check_keys(&of, known) < 0 || read_number(&of, "mean", 0, &p->response.mean) < 0 || read_number(&of, "longest", 0, &p->response.longest) < 0)
        return -1;
    return lengths_check(&p->response);
}

/* A role that never acts would be a figure that nobody asked for; what a copy holds is known from its forward. */
static int check_acting(const struct phase_plan *p, const char *file)
{
    static const struct { enum phase_does does; const char *what; } own[] = {
        [ROLE_TRAINS] = { DOES_UPDATE, "is its update" }, [ROLE_INFERS] = { DOES_FORWARD, "is its forward" }, [ROLE_IS_ENGINE] = { DOES_GENERATE, "generates with it" },
    };

    for (int i = 0; i < p->nroles; i++) {
        enum role_kind kind = p->role[i].kind;
        bool is = false;
        for (int k = 0; k < p->nsteps; k++)
            is |= p->step[k].beside == i || (p->step[k].role == i && p->step[k].does == own[kind].does);
        if (!is)
            return fail("%s: roles.%s: no phase %s", file, p->role[i].name, own[kind].what);
    }
    return 0;
}

int phase_place(const struct phase_plan *p, const struct phase_step *s)
{
    return s->role < 0 ? 0 : role_is_apart(&p->role[s->role]) ? PHASE_PLACES : p->role[s->role].place;
}

int phase_plan_read(const json_t *doc, const char *where, struct phase_plan *out)
{
    static const char *const known[] = { "$schema", "dpx_phases", "cluster", "framework", "samples", "of_prompt", "prompt", "response", "roles", "phases",
                                         "asynchronous", "ahead", "places", NULL };
    struct reading r = { where, "", doc };
    const char *framework = json_string_value(json_object_get(doc, "framework"));

    memset(out, 0, sizeof *out);
    out->of_prompt = out->ahead = 1;
    if (json_integer_value(json_object_get(doc, "dpx_phases")) != 1)
        return fail("%s: \"dpx_phases\": 1 is the version that is read", where);
    if (check_keys(&r, known) < 0)
        return -1;
    out->cluster = json_object_get(doc, "cluster");
    snprintf(out->framework, sizeof out->framework, "%s", framework ? framework : "");
    if (json_object_get(doc, "framework") && !framework)
        return wrong(&r, "framework", "a text");
    if (!out->cluster)
        return fail("%s: cluster: say on which GPUs, as \"8xh100\"", where);
    if (read_places_of(json_object_get(doc, "places"), where, out) < 0 || read_roles(json_object_get(doc, "roles"), where, out) < 0 || read_steps(json_object_get(doc, "phases"), where, out) < 0 ||
        read_count(&r, "samples", 1, &out->samples) < 0 || read_count(&r, "of_prompt", 1, &out->of_prompt) < 0 ||
        read_number(&r, "prompt", 0, &out->prompt) < 0 || read_flag(&r, "asynchronous", &out->asynchronous) < 0 || read_count(&r, "ahead", 1, &out->ahead) < 0 || read_lengths(&r, out) < 0)
        return -1;
    if (out->ahead > 1 && !out->asynchronous)
        return wrong(&r, "ahead", "1 where the plan is not \"asynchronous\"");
    if (check_acting(out, where) < 0)
        return -1;
    if (out->samples == 0)
        return fail("%s: samples: say how many responses (samples) an iteration has, over all GPUs", where);
    for (int i = 0; out->asynchronous && i <= out->nroles; i++) {
        if (i == out->nroles)
            return fail("%s: asynchronous: an engine on GPUs of its own (\"cluster\") generates while others train: there is none", where);
        if (role_is_apart(&out->role[i]))
            break;
    }
    return 0;
}
