/* Messages of PyTorch's allocator: what is accepted has its figures in bounds. */
#include "tests/fuzz/fuzz.h"

#include "base/dtype.h"
#include "sim/plan/oom_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct oom_message m;

    fuzz_quiet();
    if (oom_message_parse("x", (const char *)data, size, &m) < 0) {
        must_hold(fuzz_said[0]);
        return 0;
    }
    must_hold(m.tried >= -1 && m.tried <= SIZE_LIMIT && m.total >= -1 && m.total <= SIZE_LIMIT);
    must_hold(m.free >= -1 && m.free <= SIZE_LIMIT && m.process >= -1 && m.allowed >= -1);
    must_hold(m.allocated >= -1 && m.reserved >= -1 && m.within >= 0);
    must_hold(m.form != OOM_TEXT || m.tried >= 0);
    must_hold(m.form == OOM_TEXT || (m.allocated >= 0 && m.reserved >= 0));
    return 0;
}
