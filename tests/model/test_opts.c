/* test_opts.c -- option tables: parsing, help, manual pages, completion. */
#include "tests/check.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/version.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const precisions[] = { "bf16", "fp16", "fp32", NULL };
static const char *const strategies[] = { "dp", "ddp", "zero1", "fsdp", NULL };

struct args {
    const char *plan, *other, *output;
    int64_t     ranks, bucket;
    double      headroom;
    int         precision;
    uint64_t    strategies;
    bool        json;
};

static struct args a;
static char said[512];

/* Parses the words, ended by NULL, with one option of every kind. */
static int parse(const char *const *words)
{
    char copy[16][64], *argv[17] = { "eval" };
    int argc = 1;
    const struct opt opts[] = {
        { "PLAN.json",  "the plan",     .str = &a.plan, .positional = true, .required = true },
        { "OTHER.json", "another plan", .str = &a.other, .positional = true },
        { "ranks",      "ranks",        .i = &a.ranks, .min = 1 },
        { "bucket",     "bucket",       .bytes = &a.bucket },
        { "headroom",   "kept free",    .num = &a.headroom },
        { "precision",  "format",       .word = &a.precision, .words = precisions },
        { "strategy",   "strategies",   .set = &a.strategies, .words = strategies },
        { "output",     "where to",     .str = &a.output, .letter = 'o', .value = "FILE" },
        { "json",       "as JSON",      .flag = &a.json },
        { 0 }
    };

    a = (struct args){ .ranks = 8, .precision = -1, .headroom = 0.05 };
    for (; *words; words++, argc++) {
        snprintf(copy[argc - 1], sizeof copy[0], "%s", *words);
        argv[argc] = copy[argc - 1];
    }
    /* The strings point into `copy`: only whether they are set outlives this. */
    fail_capture(said, sizeof said);
    int rc = opts_parse("dpxplan eval", "every figure of one plan", opts, argc, argv);
    fail_capture(NULL, 0);
    return rc;
}

#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL })

/* Refused with exactly this message. */
#define REFUSED(message, ...) \
    do { \
        assert_int_equal(PARSE(__VA_ARGS__), OPTS_ERROR); \
        assert_string_equal(said, message); \
    } while (0)

static void values_stand_apart_or_after_an_equals_sign(void **state)
{
    (void)state;
    assert_int_equal(PARSE("p.json", "--ranks", "64", "--bucket=25MiB", "--headroom=.1"), OPTS_OK);
    assert_int_equal(a.ranks, 64);
    assert_int_equal(a.bucket, 25 << 20);
    assert_close(a.headroom, 0.1, 0);
    assert_false(a.json);
    assert_int_equal(PARSE("--json", "--ranks=1e3", "p.json"), OPTS_OK);
    assert_int_equal(a.ranks, 1000);
    assert_true(a.json);
}

static void what_is_not_given_keeps_its_default(void **state)
{
    (void)state;
    assert_int_equal(PARSE("p.json"), OPTS_OK);
    assert_int_equal(a.ranks, 8);
    assert_int_equal(a.precision, -1);
    assert_close(a.headroom, 0.05, 0);
    assert_null(a.other);
}

static void the_last_of_repeated_options_counts(void **state)
{
    (void)state;
    assert_int_equal(PARSE("p.json", "--ranks=2", "--ranks=3"), OPTS_OK);
    assert_int_equal(a.ranks, 3);
}

static void words_become_their_index(void **state)
{
    (void)state;
    assert_int_equal(PARSE("p.json", "--precision", "fp32", "--strategy", "zero1,dp"), OPTS_OK);
    assert_int_equal(a.precision, 2);
    assert_int_equal(a.strategies, 1 << 2 | 1 << 0);
}

static void two_dashes_end_the_options(void **state)
{
    (void)state;
    assert_int_equal(PARSE("-o", "out", "--", "--json"), OPTS_OK);
    assert_false(a.json);
    assert_non_null(a.plan);
    assert_non_null(a.output);
    assert_int_equal(PARSE("p.json", "-"), OPTS_OK);
    assert_non_null(a.other);
}

static void an_unknown_option_is_named_with_the_nearest_known(void **state)
{
    (void)state;
    REFUSED("dpxplan eval: unknown option --jsn; did you mean --json?", "p.json", "--jsn");
    REFUSED("dpxplan eval: unknown option --prec; did you mean --precision?", "--prec=x");
    REFUSED("dpxplan eval: unknown option --versoin; did you mean --version?", "--versoin");
    REFUSED("dpxplan eval: unknown option --dtype; here it is --precision", "--dtype", "bf16");
    REFUSED("dpxplan eval: unknown option --quantize; dpxplan eval --help lists them", "--quantize");
    REFUSED("dpxplan eval: unknown option -x; dpxplan eval --help lists them", "-x");
}

static void an_unknown_word_is_named_with_those_that_exist(void **state)
{
    (void)state;
    REFUSED("--precision: 'bf61' is not one of bf16, fp16, fp32; did you mean bf16?",
            "p.json", "--precision=bf61");
    REFUSED("--strategy: 'zero' is not one of dp, ddp, zero1, fsdp; did you mean zero1?",
            "p.json", "--strategy", "dp,zero");
    REFUSED("--strategy: '' is not one of dp, ddp, zero1, fsdp", "p.json", "--strategy=dp,");
}

static void a_bad_value_is_refused_with_its_option(void **state)
{
    (void)state;
    REFUSED("--ranks: '0' is too small; at least 1", "p.json", "--ranks=0");
    assert_int_equal(PARSE("p.json", "--ranks=1"), OPTS_OK);
    REFUSED("--headroom: 'nan' is not a number", "p.json", "--headroom=nan");
    REFUSED("--headroom: '0x1' is not a number", "p.json", "--headroom=0x1");
    REFUSED("--headroom: '5%' is not a number; did you mean 0.05?", "p.json", "--headroom=5%");
    REFUSED("--headroom: '0,05' is not a number; write it with a point, and nothing between thousands", "p.json", "--headroom=0,05");
    REFUSED("--headroom: '30d' is not a number; write it without \"d\", in the unit that --help names", "p.json", "--headroom=30d");
    REFUSED("--headroom: '-1' is negative", "p.json", "--headroom", "-1");
    REFUSED("--headroom: '1e999' is too large", "p.json", "--headroom=1e999");
    REFUSED("-o: is empty", "p.json", "-o", "");
    assert_int_equal(PARSE("p.json", "--bucket=-5"), OPTS_ERROR);
    assert_int_equal(PARSE("p.json", "--ranks=2MiB"), OPTS_ERROR);
}

static void a_missing_or_unwanted_value_is_refused(void **state)
{
    (void)state;
    REFUSED("dpxplan eval: --ranks needs a value: N", "p.json", "--ranks");
    REFUSED("dpxplan eval: --ranks needs a value: N", "p.json", "--ranks", "--json");
    REFUSED("dpxplan eval: --precision needs a value: bf16|fp16|fp32", "p.json", "--precision");
    REFUSED("dpxplan eval: --json takes no value", "p.json", "--json=yes");
    REFUSED("dpxplan eval: PLAN.json is missing: the plan; dpxplan eval --help says more", "--json");
    REFUSED("dpxplan eval: 'c' is one argument too many", "a", "b", "c");
}

/* The name of one option may be left out: `search llama-3.1-8b`. */
static void a_bare_option_may_stand_without_its_name(void **state)
{
    (void)state;
    static char *const asked[][5] = { { "search", "gpt2", "--seq", "8" }, { "search", "--seq", "8", "gpt2" }, { "search", "--model", "gpt2", "--seq=8" },
        { "search", "gpt2", "gpt3" }, { "search", "--model=gpt2", "gpt3" }, { "search", "--seq=8" }, { "search", "gpt2", "--model=gpt3" } };
    static const int words[] = { 4, 4, 4, 3, 3, 2, 3 };

    for (int k = 0; k < 7; k++) {
        const char *model = NULL;
        int64_t seq = 0;
        const struct opt opts[] = {
            { "model", "a name", .str = &model, .required = true, .bare = true, .value = "MODEL" },
            { "seq", "tokens", .i = &seq, .min = 1 },
            { 0 }
        };
        fail_capture(said, sizeof said);
        int rc = opts_parse("dpxplan search", "", opts, words[k], (char **)(uintptr_t)asked[k]);
        fail_capture(NULL, 0);
        assert_int_equal(rc, k < 3 ? OPTS_OK : OPTS_ERROR);
        if (k < 3)
            assert_string_equal(model, "gpt2");
        else
            assert_string_equal(said, k == 6 ? "dpxplan search: --model beside 'gpt2', which stands for it: give one of them"
                                    : k < 5 ? "dpxplan search: 'gpt3' is one argument too many"
                                            : "dpxplan search: --model is missing: a name; dpxplan search --help says more");
    }
}

static bool begins_with_a_digit(const char *word) { return word[0] >= '0' && word[0] <= '9'; }

/* What can be nothing else goes to its option wherever it stands; other words do not. */
static void a_word_of_its_own_kind_finds_its_option(void **state)
{
    (void)state;
    static char *const asked[][5] = { { "search", "gpt2", "8xh100" }, { "search", "8xh100", "gpt2" }, { "search", "8xh100", "--model", "gpt2" },
        { "search", "--cluster=8xh100", "gpt2" }, { "search", "gpt2", "gpt3" }, { "search", "gpt2", "8xh100", "4xh100" }, { "search", "8xh100", "gpt2", "--cluster=9" } };
    static const int words[] = { 3, 3, 4, 3, 3, 4, 4 };

    for (int k = 0; k < 7; k++) {
        const char *model = NULL, *cluster = NULL;
        const struct opt opts[] = {
            { "model", "a name", .str = &model, .required = true, .bare = true, .value = "MODEL" },
            { "cluster", "GPUs", .str = &cluster, .bare = true, .bare_if = begins_with_a_digit },
            { 0 }
        };
        fail_capture(said, sizeof said);
        int rc = opts_parse("dpxplan search", "", opts, words[k], (char **)(uintptr_t)asked[k]);
        fail_capture(NULL, 0);
        assert_int_equal(rc, k < 4 ? OPTS_OK : OPTS_ERROR);
        if (k < 4) {
            assert_string_equal(model, "gpt2");
            assert_string_equal(cluster, "8xh100");
        } else {
            assert_string_equal(said, k == 4 ? "dpxplan search: 'gpt3' is one argument too many"
                                    : k == 5 ? "dpxplan search: '4xh100' is one argument too many; as a cluster it is --cluster 4xh100"
                                             : "dpxplan search: --cluster beside '8xh100', which stands for it: give one of them");
        }
    }
}

static void nearest_is_none_when_nothing_is_near(void **state)
{
    (void)state;
    assert_string_equal(opts_nearest_word("ddpp", strategies), "ddp");
    assert_string_equal(opts_nearest_word("sfdp", strategies), "fsdp");
    assert_null(opts_nearest_word("pipeline", strategies));
    assert_null(opts_nearest_word("", strategies));
}

/* Runs `call` with stdout going to a file; returns what it printed. */
static char printed[4096];

static int capture(int (*call)(void))
{
    FILE *file = tmpfile();
    int saved = dup(STDOUT_FILENO), rc;
    size_t n;

    assert_non_null(file);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    rc = call();
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    n = fread(printed, 1, sizeof printed - 1, file);
    printed[n] = '\0';
    fclose(file);
    return rc;
}

static int ask_for_help(void)    { return PARSE("--help"); }
static int ask_for_version(void) { return PARSE("--version", "--jsn"); }

static void help_shows_every_option_with_its_default(void **state)
{
    (void)state;
    assert_int_equal(capture(ask_for_help), OPTS_DONE);
    assert_ptr_equal(strstr(printed, "usage: dpxplan eval PLAN.json [OTHER.json] [options]\n"), printed);
    assert_non_null(strstr(printed, "\n  --ranks N                 ranks (default 8)\n"));
    assert_non_null(strstr(printed, "\n  --bucket BYTES            bucket\n"));
    assert_non_null(strstr(printed, "\n  --headroom X              kept free (default 0.05)\n"));
    assert_non_null(strstr(printed, "--precision bf16|fp16|fp32"));
    assert_non_null(strstr(printed, "-o, --output FILE"));
}

static void version_names_the_program_not_the_command(void **state)
{
    char want[128];

    (void)state;
    assert_int_equal(capture(ask_for_version), OPTS_DONE);
    snprintf(want, sizeof want, "dpxplan %s\n", version_text());
    assert_string_equal(printed, want);
}

/* ---- pages and completion ---- */

/* The table of a command with an example, a group, a list of words and one option that most people use. */
static struct opt_pairs words;
static int64_t often, rare, other;

static int grouped(int argc, char **argv)
{
    static const struct opt opts[] = {
        OPTS_EXAMPLE("dpxplan fit gpt2"),
        { "rare",  "seldom",  .i = &rare, .group = "Money" },
        { "other", "neither", .i = &other },
        { "often", "first",   .i = &often, .often = true },
        { "WORD",  "words",   .many = &words, .positional = true },
        { 0 }
    };

    words.n = 0;
    return opts_parse("dpxplan fit", "about", opts, argc, argv);
}

static int ask_grouped(void) { return grouped(2, (char *[]){ "fit", "--help", NULL }); }

static void help_begins_with_examples_and_what_is_often_used(void **state)
{
    (void)state;
    const char *order[] = { "  dpxplan fit gpt2\n", "usage: dpxplan fit [WORD...] [options]\n", "about\n", "  WORD...", "What most people use\n  --often N",
                            "Money\n  --rare N", "Other\n  --other N" }, *at = printed;

    assert_int_equal(capture(ask_grouped), OPTS_DONE);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++, at++)
        assert_non_null(at = strstr(at, order[i]));
    assert_ptr_equal(strstr(printed, order[0]), printed);
}

static void a_last_positional_takes_all_that_are_left(void **state)
{
    (void)state;
    assert_int_equal(grouped(5, (char *[]){ "fit", "a", "--often", "3", "b", NULL }), OPTS_OK);
    assert_int_equal(words.n, 2);
    assert_string_equal(words.at[0], "a");
    assert_string_equal(words.at[1], "b");
    assert_int_equal(often, 3);
}

static int ask_for_man(void)  { return PARSE("--help-format=man"); }
static int ask_for_bash(void) { return PARSE("--help-format=bash"); }
static int ask_for_zsh(void)  { return PARSE("--help-format=zsh"); }

static void a_manual_page_has_the_rows_of_the_table(void **state)
{
    (void)state;
    assert_int_equal(capture(ask_for_man), OPTS_DONE);
    assert_non_null(strstr(printed, ".SS dpxplan eval\n.B dpxplan eval\n\\fIPLAN.json\\fR\n[\\fIOTHER.json\\fR]\n"));
    assert_non_null(strstr(printed, ".TP\n\\fB\\-\\-ranks\\fR \\fIN\\fR\nranks (default 8)\n"));
    assert_non_null(strstr(printed, ".TP\n\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIFILE\\fR\nwhere to\n"));
    assert_non_null(strstr(printed, "strategies (any of dp, ddp, zero1, fsdp)\n"));
}

static void completion_has_the_words_of_the_table(void **state)
{
    (void)state;
    assert_int_equal(capture(ask_for_bash), OPTS_DONE);
    assert_non_null(strstr(printed, "'eval --precision') words='bf16 fp16 fp32' ;;\n"));
    assert_non_null(strstr(printed, "'eval --strategy') list=1 words='dp ddp zero1 fsdp' ;;\n"));
    assert_non_null(strstr(printed, "'eval --output'|'eval -o') return ;;\n"));
    assert_int_equal(capture(ask_for_zsh), OPTS_DONE);
    assert_non_null(strstr(printed, "'--precision=[format]:word:(bf16 fp16 fp32)'"));
    assert_non_null(strstr(printed, "'(-o --output)'{-o+,--output=}'[where to]:FILE:_files'"));
    assert_non_null(strstr(printed, "'--json[as JSON]'"));
    assert_non_null(strstr(printed, "':PLAN.json:_files'"));
    assert_non_null(strstr(printed, "'::OTHER.json:_files'"));
}

static void a_format_that_there_is_not_is_refused(void **state)
{
    (void)state;
    REFUSED("--help-format: 'html' is not one of man, bash, zsh", "--help-format=html");
}

/* ---- several commands ---- */

static int ran_with;

static int eval(int argc, char **argv)
{
    assert_string_equal(argv[0], "eval");
    ran_with = argc;
    return 3;
}

static int explain(int argc, char **argv)
{
    (void)argc, (void)argv;
    return 0;
}

static int command(int argc, char *word, char *more)
{
    static const struct command commands[] = {
        OPTS_COMMANDS("Look"), { "eval", "every figure", eval }, { "explain", "why", explain }, { 0 }
    };
    char *argv[] = { "dpxplan", word, more, NULL };

    fail_capture(said, sizeof said);
    int rc = opts_command_run("dpxplan", "plans", commands, argc, argv);
    fail_capture(NULL, 0);
    return rc;
}

static int ask_commands_for_help(void) { return command(2, "--help", NULL); }
static int ask_nothing(void)             { return command(1, NULL, NULL); }
static int say_help(void)                { return command(2, "help", NULL); }
static int say_version(void)             { return command(2, "version", NULL); }
static int ask_version(void)             { return command(2, "--version", NULL); }

static void a_command_gets_its_own_arguments_and_gives_the_status(void **state)
{
    (void)state;
    assert_int_equal(command(3, "eval", "p.json"), 3);
    assert_int_equal(ran_with, 2);
}

static void an_unknown_command_is_wrong_usage(void **state)
{
    (void)state;
    assert_int_equal(command(2, "evla", NULL), 2);
    assert_string_equal(said, "dpxplan: unknown command 'evla'; did you mean eval?");
    assert_int_equal(command(2, "simulate", NULL), 2);
    assert_string_equal(said, "dpxplan: unknown command 'simulate'; there are eval, explain");
    assert_int_equal(command(3, "help", "evla"), 2);
    assert_string_equal(said, "dpxplan: unknown command 'evla'; did you mean eval?");
}

static void help_lists_the_commands(void **state)
{
    (void)state;
    assert_int_equal(capture(ask_commands_for_help), 0);
    assert_non_null(strstr(printed, "\n  eval          every figure\n"));
}

static void no_command_and_the_word_help_print_the_same_as_the_option(void **state)
{
    (void)state;
    char help[sizeof printed];

    assert_int_equal(capture(ask_commands_for_help), 0);
    memcpy(help, printed, sizeof help);
    assert_int_equal(capture(ask_nothing), 0);
    assert_string_equal(printed, help);
    assert_int_equal(capture(say_help), 0);
    assert_string_equal(printed, help);
    assert_int_equal(capture(ask_version), 0);
    memcpy(help, printed, sizeof help);
    assert_int_equal(capture(say_version), 0);
    assert_string_equal(printed, help);
    assert_int_equal(command(3, "help", "eval"), 3);        /* eval --help */
    assert_int_equal(ran_with, 2);
}

static void headings_are_no_commands(void **state)
{
    (void)state;
    assert_int_equal(command(2, "Look", NULL), 2);
    assert_string_equal(said, "dpxplan: unknown command 'Look'; there are eval, explain");
    assert_int_equal(capture(ask_nothing), 0);
    assert_non_null(strstr(printed, "\nLook\n  eval "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_stand_apart_or_after_an_equals_sign),
        cmocka_unit_test(what_is_not_given_keeps_its_default),
        cmocka_unit_test(the_last_of_repeated_options_counts),
        cmocka_unit_test(words_become_their_index),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(an_unknown_option_is_named_with_the_nearest_known),
        cmocka_unit_test(an_unknown_word_is_named_with_those_that_exist),
        cmocka_unit_test(a_bad_value_is_refused_with_its_option),
        cmocka_unit_test(a_missing_or_unwanted_value_is_refused),
        cmocka_unit_test(a_bare_option_may_stand_without_its_name),
        cmocka_unit_test(a_word_of_its_own_kind_finds_its_option),
        cmocka_unit_test(nearest_is_none_when_nothing_is_near),
        cmocka_unit_test(help_shows_every_option_with_its_default),
        cmocka_unit_test(help_begins_with_examples_and_what_is_often_used),
        cmocka_unit_test(a_last_positional_takes_all_that_are_left),
        cmocka_unit_test(version_names_the_program_not_the_command),
        cmocka_unit_test(a_manual_page_has_the_rows_of_the_table),
        cmocka_unit_test(completion_has_the_words_of_the_table),
        cmocka_unit_test(a_format_that_there_is_not_is_refused),
        cmocka_unit_test(a_command_gets_its_own_arguments_and_gives_the_status),
        cmocka_unit_test(an_unknown_command_is_wrong_usage),
        cmocka_unit_test(help_lists_the_commands),
        cmocka_unit_test(no_command_and_the_word_help_print_the_same_as_the_option),
        cmocka_unit_test(headings_are_no_commands),
    };
    return cmocka_run_group_tests_name("model/opts", tests, NULL, NULL);
}
