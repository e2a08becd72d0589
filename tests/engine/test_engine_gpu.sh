#!/bin/sh
# test_engine_gpu.sh -- what dpxrun --engine answers of GPUs, and of a framework that does something else than its plan.
# The ranks are played: what they write is what common.py writes; the trace is one of an H100 (tests/golden/kineto).
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TMPDIR="$dir" XDG_DATA_HOME="$dir/none"
keep_answers
sed 's/"micro_batch": 4/"micro_batch": 4, "optimizer_form": "foreach"/' tests/golden/kineto/plan_fsdp2_h100.json >"$dir/plan.json"
# Rank 1 gathers 7 numbers in its first step, which nobody plans; its SMs are at 1410 MHz, those of the others at 1755; it has no losses; of two no driver is asked, or says little.
cat >"$dir/python" <<END
#!/bin/sh
case \$1 in -c) [ ! "\$NOISE" ] || echo 'a module says hello'; echo '{ "torch": "2.15.0", "transformers": "5.0", "gpus": 8 }'; exit ;; esac
out=\$(dirname "\$1")
[ ! "\$NOISE" ] || { echo '{"event": "failed", "text": "printed"}'; echo '{ garbage'; }
zcat "$PWD/tests/golden/kineto/fsdp2_h100_0.json.gz" | sed "s/\"rank\": *0/\"rank\": \$RANK/" >"\$out/rank\$RANK.trace.json"
sm=1755 loss=9.5 calls=
[ "\$RANK" != 1 ] || sm=1410 loss=null calls='["all_gather", [0, 1], "fp32", 7, null, null]'
{
    echo '{"event": "start", "device": "NVIDIA H100 80GB HBM3", "versions": {"torch": "2.15.0"}}'
    echo '{"event": "phase", "name": "init", "collectives": [], "allocated": 1000, "active": 1024, "reserved": 2048, "retries": 0, "left": 900}'
    echo "{\"event\": \"phase\", \"name\": \"first\", \"collectives\": [\$calls], \"allocated\": 5000, \"active\": 5120, \"reserved\": 8192, \"retries\": 1, \"left\": 900}"
    i=0
    while [ \$i -lt \${STEPS:-6} ]; do
        i=\$((i + 1))
        echo "{\"event\": \"step\", \"step\": \$i, \"seconds\": 0.2, \"loss\": \$loss, \"grad_norm\": null}"
    done
    case \$RANK in
    2) echo '{"event": "end", "driver": null, "clocks": null}' ;;
    3) echo '{"event": "end", "driver": null, "clocks": {"sm_mhz": 1755, "sm_most_mhz": null, "memory_mhz": null, "memory_most_mhz": null}}' ;;
    *) echo "{\"event\": \"end\", \"driver\": 3000000000, \"clocks\": {\"sm_mhz\": \$sm, \"sm_most_mhz\": 1980, \"memory_mhz\": 2619, \"memory_most_mhz\": 2619}}" ;;
    esac
} >>"\$out/rank\$RANK.jsonl"
END
chmod +x "$dir/python"
run() { "$B/dpxrun" "$dir/plan.json" --engine torch --device cuda --python "$dir/python" --db "$dir/db" "$@" >"$dir/out" 2>"$dir/err" </dev/null; }
said() { for words in "$@"; do grep -q -- "$words" "$dir/out" || { echo "not said: $words"; cat "$dir/out" "$dir/err"; }; done; }

run --steps 6
check 'in words: collectives that differ, the first of them, the slowest clock' "$(said 'collectives: not those of the plan' 'is the first that differs' \
    'clock of the SMs while steps ran: 1410 MHz on rank 1, the slowest; its GPU can at most 1980 MHz')"
run --steps 6 --json
check 'the document: what was planned and issued, the clocks, the traced step' "$(said '"collectives_equal": false' '"planned": "' '"issued": "nothing"' \
    '"sm_mhz": 1410' '"memory_most_mhz": null' '"active_bytes": 5120' '"driver_bytes": 3000000000' '"exposed_comm_s": ' '"predicted_reserved_bytes": [1-9]')"
check 'on rank 1 the entry that nobody planned' "$(said '"issued": "all_gather 0,1 fp32 7"')"
"$B/dpxplan" explain --run 1 --db "$dir/db" 2>"$dir/err" | tr -s " \n" " " >"$dir/out"
check 'explain --run says that clock' "$(said 'the SMs of rank 1, the slowest, were clocked at 1410 MHz; they can at most 1980 MHz')"
"$B/dpxplan" explain --run 1 --db "$dir/db" --json >"$dir/out" 2>"$dir/err"
check 'its document has each rank of them' "$(said '"sm_mhz": 1755' '"sm_mhz": 1410')"
STEPS=1 run --steps 1 --json
check 'one step: no part of it is known' "$(said '"traced_step": null')"
NOISE=1 run --steps 6 --json
check 'what a framework prints is not in the answer' "$(said '"engine": "torch"' '"driver_bytes": 3000000000'
    ! grep 'garbage\|hello\|printed' "$dir/out")"

# The library of a driver, played: its GPU has the UUID that PyTorch says.
if command -v cc >/dev/null && "${PYTHON:-python3}" -c 'import torch, transformers' 2>/dev/null; then
    cat >"$dir/nvml.c" <<'END'
#include <string.h>
#include <unistd.h>
struct process { unsigned pid; unsigned long long bytes; unsigned gi, ci; };
static int gpu;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **to) { *to = &gpu; return strcmp(uuid, "GPU-abc") ? 6 : 0; }
int nvmlDeviceGetClockInfo(void *of, int kind, unsigned *mhz) { static int n; *mhz = kind == 1 ? (n++ % 3 ? 1755 : 210) : 2619; return of == &gpu ? 0 : 1; }
int nvmlDeviceGetMaxClockInfo(void *of, int kind, unsigned *mhz) { *mhz = 1980; return of == &gpu && kind == 1 ? 0 : 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *of, unsigned *n, struct process *p)
{
    p[0] = (struct process){ 1, 5, 0, 0 }, p[1] = (struct process){ (unsigned)getpid(), 7000000000ull, 0, 0 };
    *n = 2;
    return of == &gpu ? 0 : 1;
}
END
    cc -shared -fPIC -o "$dir/libnvidia-ml.so.1" "$dir/nvml.c"
    cp exec/engine/common.py "$dir/dpx_common.py"
    cat >"$dir/job.json" <<END
{ "plan": {}, "device": "cuda", "world_size": 1, "threads": 1, "port": 29400, "folder": "$dir" }
END
    cat >"$dir/ask.py" <<'END'
import sys, time, types
import dpx_common as common
common.torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(uuid=sys.argv[1])
driver = common.Driver()
driver.watch()
time.sleep(0.5)
common.tell("said", clocks=driver.clocks(), bytes=driver.bytes())
END
    ask() {
        rm -f "$dir/rank0.jsonl"
        MASTER_ADDR=127.0.0.1 LD_LIBRARY_PATH="$1" "${PYTHON:-python3}" "$dir/ask.py" "$2" >"$dir/err" 2>&1
        tail -n 1 "$dir/rank0.jsonl" >"$dir/out"
        cat "$dir/rank0.log" >>"$dir/err"
    }
    ask "$dir" abc
    check "the median of a GPU's clocks, and what the driver counts for the process" \
        "$(said '"clocks": {"sm_mhz": 1755, "sm_most_mhz": 1980, "memory_mhz": 2619, "memory_most_mhz": null}, "bytes": 7000000000')"
    ask "$dir" xyz
    check 'a GPU that the driver does not know: nothing is said' "$(said '"clocks": null, "bytes": null')"
    ask /nonexistent abc
    check 'no driver: nothing is said' "$(said '"clocks": null, "bytes": null')"
else
    skip "the median of a GPU's clocks" 'needs cc, torch and transformers'
fi
finish
