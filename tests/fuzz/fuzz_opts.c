/* The input is a command line, one argument a line. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdio.h>

#include "base/opts.h"

static const char *const words[] = { "none", "selective", "full", "all", NULL };

static int run(int argc, char **argv)
{
    const char *plan = NULL, *other = NULL, *output = NULL;
    int64_t ranks = 1, memory = 0;
    double lr = 0;
    int word = -1;
    uint64_t set = 0;
    bool json = false;
    const struct opt opts[] = {
        { "PLAN.json",  "the plan",   .str = &plan, .positional = true, .required = true },
        { "OTHER.json", "another",    .str = &other, .positional = true },
        { "output",     "where to",   .str = &output, .letter = 'o' },
        { "ranks",      "ranks",      .i = &ranks, .min = 1 },
        { "memory",     "bytes",      .bytes = &memory },
        { "lr",         "rate",       .num = &lr },
        { "recompute",  "what",       .word = &word, .words = words },
        { "list",       "which",      .set = &set, .words = words },
        { "json",       "as JSON",    .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan eval", "every figure", opts, argc, argv);

    must_hold(rc == OPTS_OK || rc == OPTS_DONE || (rc == OPTS_ERROR && fuzz_said[0]));
    must_hold(ranks >= 1 && memory >= 0 && isfinite(lr) && lr >= 0);
    must_hold(word >= -1 && word < 4 && set < 16);
    must_hold(rc != OPTS_OK || plan);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct command commands[] = {
        { "eval", "every figure", run }, { "explain", "why", run }, { 0 }
    };
    static FILE *nowhere;
    char *text = fuzz_string(data, size), *argv[40] = { "dpxplan" };
    int argc = 1;

    if (!nowhere)               /* --help prints */
        nowhere = freopen("/dev/null", "w", stdout);
    fuzz_quiet();
    for (char *s = strtok(text, "\n"); s && argc < 39; s = strtok(NULL, "\n"))
        argv[argc++] = s;
    opts_command_run("dpxplan", "plans", commands, argc, argv);
    free(text);
    return 0;
}
