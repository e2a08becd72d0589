/* eval_calls.c PLAN.json -- ten calls of libdpx: the plan evaluated with PyTorch's kernels and with dpx's own, in turn.  For
 * tests/bench/eval.sh, which counts its instructions: what a call pays that the one before has paid already shows there. */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "lib/dpx.h"

static int ask(json_t *plan, const char *kernels)
{
    json_t *set = json_pack("{s:s}", "kernels", kernels), *request = json_pack("{s:O, s:o}", "plan", plan, "set", set);
    char *text = json_dumps(request, 0), *answer;
    int status = dpx_eval(text, &answer);

    if (status != DPX_DONE)
        fprintf(stderr, "%s\n", answer);
    dpx_free(answer);
    free(text);
    json_decref(request);
    return status;
}

int main(int argc, char **argv)
{
    json_t *plan = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL;
    int status = plan ? DPX_DONE : DPX_MISUSE;

    for (int i = 0; i < 10 && status == DPX_DONE; i++)
        status = ask(plan, i % 2 ? "dpx" : "torch-sdpa");
    json_decref(plan);
    return status;
}
