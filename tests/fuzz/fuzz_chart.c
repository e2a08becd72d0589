/* Charts that the planner's page asks for: what is accepted is drawn without NaN or infinity, what is refused is given a reason. */
#include "tests/fuzz/fuzz.h"

#include "base/chart/chart_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *request = fuzz_string(data, size), *answer;
    int status = chart_answer(request, &answer);

    must_hold(status == 0 || (status == 2 && answer[0]));
    if (status == 0)
        must_hold(!strstr(answer, "=\\\"nan") && !strstr(answer, "=\\\"inf") && !strstr(answer, "=\\\"-inf"));
    free(answer);
    free(request);
    return 0;
}
