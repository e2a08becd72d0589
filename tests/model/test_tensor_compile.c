/* Tensor-parallel blocks under torch.compile(): what forward keeps, and the products, attention and collectives of both
 * passes, held against the graphs that Dynamo, AOTAutograd and inductor's partitioner made
 * (tests/golden/grid/record_compile.py). */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/lower/lower.h"
#include "model/schedule/schedule.h"

/* ---- calls, as sorted words: the order of products is inductor's own ---- */

struct words { char word[128][40]; int n; };

static void add(struct words *w, const char *word)
{
    assert_true(w->n < 128);
    snprintf(w->word[w->n++], sizeof w->word[0], "%s", word);
}

static int compare(const void *a, const void *b) { return strcmp(a, b); }

/* A product by its three sizes, whichever of its operands is transposed. */
static void add_product(struct words *w, long long m, long long k, long long n)
{
    char word[40];

    snprintf(word, sizeof word, "mm %lld x %lld x %lld", m < n ? m : n, k, m < n ? n : m);
    add(w, word);
}

static void recorded(const json_t *calls, struct words *w)
{
    w->n = 0;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *call = json_string_value(json_array_get(calls, i));
        long long m, k, n;
        if (sscanf(call, "mm %lld x %lld x %lld", &m, &k, &n) == 3)
            add_product(w, m, k, n);
        else
            add(w, call);
    }
    qsort(w->word, (size_t)w->n, sizeof w->word[0], compare);
}

static void planned(const struct piece *p, enum pass pass, struct words *w)
{
    w->n = 0;
    for (int i = 0; i < p->nkernels[pass]; i++) {
        const struct kernel *k = &p->kernels[pass][i];
        if (k->kind == KC_GEMM && k->m > 0)
            add_product(w, k->m, k->k, k->n);
        else if (k->kind == KC_ATTENTION && k->flops > 0)
            add(w, "attention");
    }
    for (int i = 0; i < p->ncollectives[pass]; i++) {
        const struct collective *c = &p->collectives[pass][i];
        char word[40];
        if (c->group != GROUP_TENSOR || c->dtype != DT_BF16)
            continue;                   /* norms' gradients: FSDP2's, outside of the graph */
        snprintf(word, sizeof word, "%s %lld", c->op == COLL_ALL_GATHER ? "all_gather" : "reduce_scatter", (long long)c->elems);
        add(w, word);
    }
    qsort(w->word, (size_t)w->n, sizeof w->word[0], compare);
}

static void same(const char *name, const char *pass, const struct words *got, const struct words *want)
{
    for (int i = 0; i < got->n || i < want->n; i++)
        if (i >= got->n || i >= want->n || strcmp(got->word[i], want->word[i]))
            fail_msg("%s, %s: call %d is \"%s\", recorded \"%s\"", name, pass, i, i < got->n ? got->word[i] : "",
                     i < want->n ? want->word[i] : "");
}

/* ---- cases ---- */

static const char *text_of(const json_t *line, const char *key) { return json_string_value(json_object_get(line, key)); }
static int number_of(const json_t *line, const char *key) { return (int)json_integer_value(json_object_get(line, key)); }

static void plan_of(const json_t *line, const json_t *models, struct plan *p)
{
    int tensor = number_of(line, "tensor"), ranks = 2 * tensor;
    json_t *model = json_deep_copy(json_object_get(models, text_of(line, "model")));
    char cluster[32];

    json_object_set_new(model, "tie_word_embeddings", json_false());
    snprintf(cluster, sizeof cluster, ranks > 8 ? "2x%dxh100" : "%dxh100", ranks > 8 ? ranks / 2 : ranks);
    json_t *plan = json_pack("{s:i, s:o, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:{s:i}}", "dpx_plan", 1, "model", model, "cluster",
                             cluster, "seq", number_of(line, "seq"), "micro_batch", number_of(line, "batch"), "strategy", "fsdp",
                             "dialect", "torch", "precision", "bf16", "kernels", "torch-compile", "recompute",
                             text_of(line, "recompute"), "parallel", "tensor", tensor);
    assert_non_null(plan);
    assert_int_equal(plan_from_json(plan, "plan", p), 0);
    json_decref(plan);
}

static void agrees(const json_t *line, const json_t *models)
{
    enum piece_id id = strcmp(text_of(line, "recompute"), "none") ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK;
    struct schedules s = { 0 };
    struct words got, want;
    struct plan p;
    char name[96];

    snprintf(name, sizeof name, "%s %d x %d, tensor %d, recompute %s", text_of(line, "model"), number_of(line, "batch"),
             number_of(line, "seq"), number_of(line, "tensor"), text_of(line, "recompute"));
    plan_of(line, models, &p);
    assert_int_equal(lower(&p, 0, &s), 0);
    const struct piece *block = &s.program.piece[id];
    for (int pass = 0; pass < NPASS; pass++) {
        planned(block, (enum pass)pass, &got);
        recorded(json_object_get(line, pass == PASS_FORWARD ? "forward" : "backward"), &want);
        same(name, pass == PASS_FORWARD ? "forward" : "backward", &got, &want);
    }
    long long saved = json_integer_value(json_object_get(line, "saved"));
    if (block->saved != saved)
        fail_msg("%s: %lld bytes are kept, the partitioner keeps %lld", name, (long long)block->saved, saved);
    schedules_free(&s);
    plan_free(&p);
}

static void blocks_are_the_graphs_that_inductor_gets(void **state)
{
    FILE *f = fopen("tests/golden/grid/compile.jsonl", "r");
    char text[32768];
    int n = 0;

    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    json_t *head = json_loads(text, 0, NULL);
    while (fgets(text, sizeof text, f)) {
        json_t *line = json_loads(text, 0, NULL);
        if (!json_is_true(json_object_get(line, "async"))) {
            agrees(line, json_object_get(head, "models"));
            n++;
        }
        json_decref(line);
    }
    assert_true(n >= 15);
    json_decref(head);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_the_graphs_that_inductor_gets),
    };
    return cmocka_run_group_tests_name("tensor parallelism, compiled", tests, NULL, NULL);
}
