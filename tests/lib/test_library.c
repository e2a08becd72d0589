/* The library as a program sees it: dpx.h, the shared object, and nothing else of dpx. */
#include "tests/check.h"

#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "lib/dpx.h"

/* GPT-2: 124,439,808 parameters (Radford et al. 2019; the sum over its config.json is in model/test_builtin.c). */
#define PARAMS 124439808LL
#define PLAN "{\"dpx_plan\": 1, \"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"micro_batch\": 1," \
             " \"strategy\": \"ddp\", \"dialect\": \"paper\", \"precision\": \"fp32\"}"
#define FSDP "{\"dpx_plan\": 1, \"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"micro_batch\": 1," \
             " \"strategy\": \"fsdp\", \"dialect\": \"torch\", \"precision\": \"bf16\"}"
#define ZERO "{\"dpx_plan\": 1, \"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"micro_batch\": 1," \
             " \"strategy\": \"zero2\", \"dialect\": \"deepspeed\", \"precision\": \"bf16\"}"
#define SEARCH "{\"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"global_batch\": 4, \"strategy\": [\"ddp\", \"fsdp\"]," \
               " \"top\": 3, \"threads\": 2}"

typedef int simple_fn(const char *request, char **answer);

static int search_alone(const char *request, char **answer) { return dpx_search(request, NULL, answer); }
static int sweep_alone(const char *request, char **answer) { return dpx_sweep(request, NULL, answer); }

/* The document of an answer with this status. */
static json_t *ask(simple_fn *fn, const char *request, int status)
{
    char *answer = NULL;
    int got = fn(request, &answer);

    if (got != status)
        fail_msg("%s gave %d, not %d: %s", request, got, status, answer);
    json_t *doc = json_loads(answer, 0, NULL);
    assert_non_null(doc);
    dpx_free(answer);
    return doc;
}

/* "memory.params_bytes". */
static const json_t *at(const json_t *doc, const char *path)
{
    char name[64];

    for (; doc && *path; path += strcspn(path, ".") + (path[strcspn(path, ".")] == '.')) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(path, "."), path);
        doc = json_object_get(doc, name);
    }
    return doc;
}

static void bytes_are_those_that_arithmetic_gives(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_eval, "{\"plan\": " PLAN "}", DPX_DONE);

    assert_int_equal(json_integer_value(at(doc, "dpx")), DPX_API);
    assert_int_equal(json_integer_value(at(doc, "model.params")), PARAMS);
    assert_int_equal(json_integer_value(at(doc, "memory.params_bytes")), 4 * PARAMS);       /* fp32 */
    assert_int_equal(json_integer_value(at(doc, "memory.grads_bytes")), 4 * PARAMS);
    assert_int_equal(json_integer_value(at(doc, "memory.optimizer_bytes")), 8 * PARAMS);    /* AdamW: two moments */
    assert_true(json_is_true(at(doc, "fits")));
    assert_true(json_string_length(at(doc, "label")) > 0);
    json_decref(doc);
}

static void changes_are_those_of_set(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_eval, "{\"plan\": " PLAN ", \"set\": {\"nodes\": 2, \"micro_batch\": \"2\", \"clip\": null}}", DPX_DONE);

    assert_int_equal(json_integer_value(at(doc, "cluster.world_size")), 4);
    assert_int_equal(json_integer_value(at(doc, "plan.micro_batch")), 2);
    assert_true(json_is_null(at(doc, "plan.clip")));
    json_decref(doc);
}

/* 2 ranks of 16 GB and a model of 8e9 parameters, 16 bytes each. */
static void that_nothing_fits_is_an_answer(void **state)
{
    (void)state;
    json_t *doc = ask(search_alone, "{\"model\": \"llama-3.1-8b\", \"cluster\": \"2xv100\", \"seq\": 2048, \"global_batch\": 2,"
                      " \"strategy\": \"ddp\", \"no_offload\": true}", DPX_NO);

    assert_int_equal(json_integer_value(at(doc, "fitting")), 0);
    assert_true(json_is_object(at(doc, "nearest_that_does_not_fit")));
    json_decref(doc);
}

/* Data parallelism over twice the ranks: parameters stay, ranks double; the point's figures are eval's. */
static void a_sweep_s_points_are_those_of_eval(void **state)
{
    (void)state;
    json_t *doc = ask(sweep_alone, "{\"plan\": " PLAN ", \"over\": {\"seq\": [256, 512], \"nodes\": \"1..2\"}}", DPX_DONE);
    json_t *one = ask(dpx_eval, "{\"plan\": " PLAN ", \"set\": {\"seq\": 256, \"nodes\": 2}}", DPX_DONE);
    json_t *point = json_array_get(at(doc, "points"), 1);       /* the number of nodes runs fastest */

    assert_int_equal(json_array_size(at(doc, "points")), 4);
    assert_int_equal(json_integer_value(at(point, "gpus")), 4);
    assert_close(json_real_value(at(point, "step_s")), json_real_value(at(one, "time.step_s")), 0);
    json_decref(doc);
    json_decref(one);
}

/* Eight GPUs of 80e9 bytes and more, 16 bytes a parameter in plain data parallelism: below 6e9 parameters. */
/* 16 bytes a parameter (AdamW in mixed precision) and activations: one card holds GPT-2. */
static void the_least_number_is_a_document(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_fit, "{\"model\": \"gpt2\", \"gpu\": [\"t4\", \"h100\"], \"seq\": 512, \"batch\": 4, \"samples\": 100, \"price\": 2}", DPX_DONE);
    const json_t *row = json_array_get(at(doc, "gpus"), 1);

    assert_true(json_is_true(at(doc, "fits")));
    assert_string_equal(json_string_value(at(doc, "version")), dpx_version());
    assert_int_equal(json_array_size(at(doc, "gpus")), 2);
    assert_int_equal(json_integer_value(at(row, "gpus")), 1);
    assert_string_equal(json_string_value(at(row, "gpu")), "h100");
    assert_true(json_integer_value(at(row, "memory.needed_bytes")) >= 16 * PARAMS);
    assert_int_equal(json_integer_value(at(row, "training.steps")), 25);
    assert_true(json_is_object(at(row, "plan")));
    assert_int_equal(json_array_size(at(doc, "next")), 2);
    json_decref(doc);
    doc = ask(dpx_fit, "{\"model\": \"llama-3.1-70b\", \"gpu\": \"t4\", \"seq\": 512, \"batch\": 1, \"framework\": \"deepspeed\"}", DPX_NO);
    assert_true(json_is_false(at(doc, "fits")));
    assert_true(json_is_null(at(json_array_get(at(doc, "gpus"), 0), "gpus")));
    json_decref(doc);
}

static void limits_and_names_are_documents(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_limits, "{\"states_only\": true, \"memory\": \"80e9\", \"world\": 8, \"dialect\": \"paper\"}", DPX_DONE), *row;
    bool seen = false;
    size_t i;

    json_array_foreach(at(doc, "limits"), i, row)
        if (!strcmp(json_string_value(at(row, "strategy")), "ddp")) {
            assert_close(json_number_value(at(row, "bytes_per_param")), 16, 0.01);
            seen = true;
        }
    assert_true(seen);
    json_decref(doc);
    doc = ask(dpx_list, "{\"what\": \"strategies\"}", DPX_DONE);
    assert_true(json_array_size(at(doc, "strategies")) > 10);
    json_decref(doc);
}

static void what_is_wrong_with_a_request_is_said_in_one_line(void **state)
{
    static const struct { simple_fn *fn; const char *request, *said; } wrong[] = {
        { dpx_eval, NULL, "NULL" },
        { dpx_eval, "", "malformed JSON" },
        { dpx_eval, "{\"plan\": 1, \"plan\": 2}", "duplicate" },
        { dpx_eval, "[]", "a request is a JSON object" },
        { dpx_eval, "{}", "\"plan\" is missing" },
        { dpx_eval, "{\"plan\": null}", "\"plan\" is missing" },
        { dpx_eval, "{\"pln\": 1}", "did you mean plan?" },
        { dpx_eval, "{\"plan\": \"-\"}", "standard input" },
        { dpx_eval, "{\"plan\": true}", "plan: must be an object, or a text that names one" },
        { dpx_eval, "{\"plan\": \"/nowhere/plan.json\"}", "/nowhere/plan.json: No such file" },
        { dpx_eval, "{\"plan\": {\"dpx_plan\": 1}}", "model" },
        { dpx_eval, "{\"plan\": " PLAN ", \"set\": {\"sq\": 1}}", "did you mean seq?" },
        { dpx_eval, "{\"plan\": " PLAN ", \"set\": [\"seq=1\"]}", "must be an object" },
        { dpx_eval, "{\"plan\": " PLAN ", \"set\": {\"seq\": {}}}", "must be a text, a number" },
        { dpx_eval, "{\"plan\": " PLAN ", \"tokens\": \"many\"}", "many" },
        { dpx_eval, "{\"plan\": " PLAN ", \"tokens\": 0}", "too small" },
        { dpx_eval, "{\"plan\": " PLAN ", \"price\": 2}", "--tokens" },
        { search_alone, "{\"model\": \"gpt2\", \"seq\": 512}", "\"cluster\" is missing" },
        { search_alone, "{\"model\": \"gpt22\", \"cluster\": \"2xa100\", \"seq\": 512, \"global_batch\": 4}", "did you mean gpt2" },
        { search_alone, "{\"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"global_batch\": 3, \"no_grid\": true}",
          "not a multiple" },
        { search_alone, "{\"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"global_batch\": 4, \"no_offload\": 1}",
          "must be true or false" },
        { search_alone, "{\"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"global_batch\": 4, \"strategy\": [\"ddq\"]}",
          "did you mean ddp" },
        { dpx_explain, "{\"plan\": " PLAN ", \"other\": " FSDP ", \"oom_text\": \"x\"}", "--oom goes with one plan" },
        { dpx_explain, "{\"plan\": " PLAN ", \"oom_text\": \"all is well\"}", "no out-of-memory message" },
        { dpx_import, "{\"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512}", "give one file" },
        { dpx_export, "{\"plan\": " PLAN ", \"to\": \"megatron\"}", "megatron" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *answer = NULL;
        int status = wrong[i].fn(wrong[i].request, &answer);
        if (status != DPX_MISUSE || !strstr(answer, wrong[i].said) || strchr(answer, '\n'))
            fail_msg("%s gave %d: %s", wrong[i].request ? wrong[i].request : "NULL", status, answer);
        dpx_free(answer);
    }
    dpx_free(NULL);
}

static void what_is_exported_is_imported_again(void **state)
{
    (void)state;
    json_t *out = ask(dpx_export, "{\"plan\": " ZERO ", \"to\": \"deepspeed\"}", DPX_DONE);
    char *request = malloc(json_string_length(at(out, "text")) + 256);

    assert_non_null(request);
    sprintf(request, "{\"ds_config\": %s, \"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512}", json_string_value(at(out, "text")));
    json_t *in = ask(dpx_import, request, DPX_DONE), *was = ask(dpx_eval, "{\"plan\": " ZERO "}", DPX_DONE);
    assert_true(json_equal((json_t *)at(in, "plan"), (json_t *)at(was, "plan")));
    assert_string_equal(json_string_value(at(in, "label")), json_string_value(at(was, "label")));
    free(request);
    json_decref(out);
    json_decref(in);
    json_decref(was);
}

/* What a command would say on standard error stands in the answer, once. */
static void notes_are_part_of_the_answer(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_import, "{\"ds_config\": {\"zero_optimization\": {\"stage\": 1}, \"unheard_of\": 1, \"bf16\": {\"enabled\": true},"
                      " \"train_micro_batch_size_per_gpu\": \"auto\"}, \"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512}", DPX_DONE);
    const json_t *notes = at(doc, "notes"), *v;
    size_t i;
    bool said = false;

    json_array_foreach((json_t *)notes, i, v)
        said |= strstr(json_string_value(v), "unheard_of") != NULL;
    assert_true(said);
    json_decref(doc);
}

/* ---- one plan, two plans, a message ---- */

static void an_explanation_adds_up(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_explain, "{\"plan\": " PLAN ", \"schedule\": true}", DPX_DONE);
    const json_t *peak = json_array_get(at(doc, "peaks"), 0), *v;
    int64_t sum = 0, most = 0;
    size_t i;

    json_array_foreach((json_t *)at(peak, "live"), i, v)
        sum += json_integer_value(at(v, "bytes"));
    assert_int_equal(sum, json_integer_value(at(peak, "bytes")));       /* with what the entry at the peak works with */
    json_array_foreach((json_t *)at(doc, "memory_curve_bytes"), i, v)
        most = json_integer_value(v) > most ? json_integer_value(v) : most;
    assert_int_equal(most, json_integer_value(at(peak, "bytes")));
    assert_true(json_array_size(at(doc, "schedule.steady")) > 0);
    assert_true(json_string_length(at(doc, "advice.why")) > 0);
    json_decref(doc);
}

static void two_plans_differ_in_what_differs(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_explain, "{\"plan\": " PLAN ", \"other\": {\"dpx_plan\": 1, \"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512,"
                      " \"micro_batch\": 2, \"strategy\": \"ddp\", \"dialect\": \"paper\", \"precision\": \"fp32\"}}", DPX_DONE);
    const json_t *options = at(doc, "options"), *changes = at(doc, "changes");

    assert_int_equal(json_array_size(options), 1);
    assert_string_equal(json_string_value(at(json_array_get(options, 0), "key")), "micro_batch");
    assert_int_equal(json_array_size(changes), 1);
    assert_string_equal(json_string_value(at(json_array_get(changes, 0), "set")), "micro_batch=2");
    /* the one change is the other plan */
    assert_close(json_real_value(at(json_array_get(changes, 0), "step_s")), json_real_value(at(doc, "second.time.step_s")), 1e-12);
    json_decref(doc);
}

static void an_out_of_memory_message_is_read(void **state)
{
    (void)state;
    json_t *doc = ask(dpx_explain, "{\"plan\": " PLAN ", \"oom_text\": \"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
                      " GPU 0 has a total capacity of 39.39 GiB of which 1.00 GiB is free. Of the allocated memory 30.00 GiB is allocated"
                      " by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.\"}", DPX_DONE);

    assert_int_equal(json_integer_value(at(doc, "message.tried_bytes")), 2LL << 30);
    assert_int_equal(json_integer_value(at(doc, "message.reserved_bytes")), 32LL << 30);
    assert_true(json_string_length(at(doc, "text")) > 0);
    json_decref(doc);
}

/* ---- progress ---- */

struct seen { pthread_t caller; long long calls, last, total; int stop_after; bool elsewhere; };

static int watch_progress(void *data, long long done, long long total)
{
    struct seen *s = data;

    s->elsewhere |= !pthread_equal(s->caller, pthread_self()) || done < s->last || done > total || total < s->total;
    s->last = done;
    s->total = total;
    return ++s->calls == s->stop_after;
}

static void progress_is_told_to_the_caller_s_thread(void **state)
{
    (void)state;
    struct seen s = { .caller = pthread_self() };
    struct dpx_watch w = { watch_progress, &s };
    char *answer;

    assert_int_equal(dpx_search(SEARCH, &w, &answer), DPX_DONE);
    assert_true(s.calls > 0 && s.total > 0);
    assert_false(s.elsewhere);
    dpx_free(answer);
}

static void a_search_ends_when_it_is_told_to(void **state)
{
    (void)state;
    struct seen s = { .caller = pthread_self(), .stop_after = 2 };
    struct dpx_watch w = { watch_progress, &s };
    char *answer;

    assert_int_equal(dpx_search(SEARCH, &w, &answer), DPX_CANCELLED);
    assert_int_equal(s.calls, 2);
    assert_non_null(strstr(answer, "stopped"));
    dpx_free(answer);
}

/* ---- what a library must leave alone ---- */

static void nothing_is_printed_and_no_handler_is_set(void **state)
{
    (void)state;
    struct sigaction before, after;
    char text[64];
    FILE *f = tmpfile();
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    char *answer[4];

    assert_true(f && out >= 0 && err >= 0);
    fflush(stdout);
    sigaction(SIGINT, NULL, &before);
    dup2(fileno(f), STDOUT_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    dpx_search(SEARCH, NULL, &answer[0]);
    dpx_explain("{\"plan\": " PLAN ", \"other\": " FSDP "}", &answer[1]);
    dpx_import("{\"accelerate\": \"/nowhere\", \"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512}", &answer[2]);
    dpx_eval("{\"plan\": " PLAN ", \"tokens\": \"1T\", \"price\": 2, \"days\": 30, \"jitter\": \"0.03\"}", &answer[3]);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    sigaction(SIGINT, NULL, &after);
    rewind(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    assert_string_equal(text, "");
    assert_true(before.sa_handler == after.sa_handler);
    for (int i = 0; i < 4; i++)
        dpx_free(answer[i]);
    fclose(f);
    close(out);
    close(err);
}

/* A program that has chosen a locale has commas in its numbers. */
static void the_program_s_locale_changes_nothing(void **state)
{
    static const char *const request = "{\"plan\": " PLAN ", \"tokens\": 1000000000, \"price\": 2.5, \"jitter\": \"0.03\", \"set\": {\"headroom\": 0.125}}";
    char *plain, *other;

    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        skip();
    assert_int_equal(dpx_eval(request, &other), DPX_DONE);
    setlocale(LC_ALL, "C");
    assert_int_equal(dpx_eval(request, &plain), DPX_DONE);
    assert_string_equal(plain, other);
    dpx_free(plain);
    dpx_free(other);
}

static void check_numbers(const json_t *v, const char *where)
{
    const char *key;
    json_t *x;
    size_t i;

    json_object_foreach((json_t *)v, key, x)
        check_numbers(x, key);
    json_array_foreach((json_t *)v, i, x)
        check_numbers(x, where);
    if (json_is_integer(v) && (json_integer_value(v) > 1LL << 53 || json_integer_value(v) < -(1LL << 53)))
        fail_msg("%s: %lld is beyond 2^53", where, (long long)json_integer_value(v));
}

static void numbers_are_those_of_a_double(void **state)
{
    (void)state;
    json_t *doc = ask(search_alone, SEARCH, DPX_DONE);

    check_numbers(doc, "search");
    json_decref(doc);
    /* ZeRO-3: DeepSpeed's own default of one threshold is 2^63 - 1 (tests/README.md, "Thresholds") */
    doc = ask(dpx_eval, "{\"plan\": " ZERO ", \"set\": {\"strategy\": \"zero3\"}}", DPX_DONE);
    check_numbers(doc, "eval");
    json_decref(doc);
}

/* ---- threads ---- */

static const struct { simple_fn *fn; const char *request; } mix[] = {
    { dpx_eval, "{\"plan\": " PLAN "}" },
    { search_alone, SEARCH },
    { dpx_explain, "{\"plan\": " PLAN ", \"other\": " FSDP "}" },
    { dpx_eval, "{\"plan\": " PLAN ", \"set\": {\"sq\": 1}}" },
    { dpx_export, "{\"plan\": " FSDP ", \"to\": \"torchtitan\"}" },
    { dpx_explain, "{\"plan\": " ZERO ", \"schedule\": true}" },
    { search_alone, "{\"model\": \"gpt22\", \"cluster\": \"2xa101\", \"seq\": 512, \"global_batch\": 4}" },
    { dpx_export, "{\"plan\": " ZERO ", \"to\": \"accelerate\"}" },
    { dpx_eval, "{\"plan\": " FSDP ", \"jitter\": \"0.03,20e-6,1e-6,0.5\", \"tokens\": \"1T\"}" },
    { sweep_alone, "{\"plan\": " PLAN ", \"over\": {\"nodes\": [1, 2], \"seq\": \"256..512*2\"}}" },
    { sweep_alone, "{\"plan\": " PLAN ", \"over\": {\"micro_batch\": 0}}" },
    { dpx_fit, "{\"model\": \"gpt2\", \"gpu\": [\"t4\", \"h100\"], \"seq\": 512, \"batch\": 4}" },
    { dpx_bill, "{\"plan\": " FSDP ", \"tokens\": \"10B\", \"mtbf\": \"200h\", \"storage\": \"1GB/s\", \"spares\": 1, \"repair\": \"2h\", \"worlds\": true}" },
    { dpx_phases, "{\"file\": \"demo/grpo.json\"}" },
    { dpx_limits, "{\"model\": \"gpt2\", \"cluster\": \"2xa100\", \"seq\": 512, \"dialect\": \"paper\"}" },
    { dpx_list, "{\"what\": \"gpus\"}" },
    { dpx_list, "{\"what\": \"gpu\"}" },
    { dpx_import, "{\"ds_config\": {\"zero_optimization\": {\"stage\": 1}, \"bf16\": {\"enabled\": true},"
                  " \"train_micro_batch_size_per_gpu\": 1}, \"model\": \"gpt2\", \"cluster\": \"2xa101\", \"seq\": 512}" },
};
enum { MIX = sizeof mix / sizeof *mix, THREADS = 4 };

/* An answer without the seconds that it took. */
static char *answer_of(int i)
{
    char *answer, *after, *end;

    mix[i].fn(mix[i].request, &answer);
    if ((after = strstr(answer, "\"search_s\":")) && (end = strchr(after, ',')))
        memset(after, ' ', (size_t)(end - after));
    for (char *from = answer, *to = answer; ; from++) {
        if (*from != ' ')
            *to++ = *from;
        if (!*from)
            break;
    }
    return answer;
}

static char *alone[MIX];

/* How many answers were others than those of one thread. */
static void *thread(void *arg)
{
    intptr_t first = (intptr_t)arg, wrong = 0;

    for (int i = 0; i < MIX; i++) {
        int k = (int)((first + i) % MIX);
        char *answer = answer_of(k);
        wrong += strcmp(answer, alone[k]) != 0;
        dpx_free(answer);
    }
    return (void *)wrong;
}

static void four_threads_get_the_answers_of_one(void **state)
{
    pthread_t threads[THREADS];
    void *wrong;

    (void)state;
    for (int i = 0; i < MIX; i++)
        alone[i] = answer_of(i);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    for (int i = 0; i < MIX; i++)
        dpx_free(alone[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_that_arithmetic_gives),
        cmocka_unit_test(changes_are_those_of_set),
        cmocka_unit_test(that_nothing_fits_is_an_answer),
        cmocka_unit_test(a_sweep_s_points_are_those_of_eval),
        cmocka_unit_test(the_least_number_is_a_document),
        cmocka_unit_test(limits_and_names_are_documents),
        cmocka_unit_test(what_is_wrong_with_a_request_is_said_in_one_line),
        cmocka_unit_test(what_is_exported_is_imported_again),
        cmocka_unit_test(notes_are_part_of_the_answer),
        cmocka_unit_test(an_explanation_adds_up),
        cmocka_unit_test(two_plans_differ_in_what_differs),
        cmocka_unit_test(an_out_of_memory_message_is_read),
        cmocka_unit_test(progress_is_told_to_the_caller_s_thread),
        cmocka_unit_test(a_search_ends_when_it_is_told_to),
        cmocka_unit_test(nothing_is_printed_and_no_handler_is_set),
        cmocka_unit_test(the_program_s_locale_changes_nothing),
        cmocka_unit_test(numbers_are_those_of_a_double),
        cmocka_unit_test(four_threads_get_the_answers_of_one),
    };

    setenv("DPX_MEASURED", "/nonexistent", 1);          /* no calibration that this machine may have */
    setenv("XDG_DATA_HOME", "/nonexistent", 1);
    return cmocka_run_group_tests_name("lib/library", tests, NULL, NULL);
}
