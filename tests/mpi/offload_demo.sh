#!/bin/sh
# tests/mpi/offload_demo.sh [STEPS] -- a model that the memory does not hold trains: GPT-2 1.5B in fp32 with AdamW, 25 GB of
# parameters, gradients and states, on two ranks of this machine within 10 GiB of memory.  Stage 3 by its paper (dialect
# paper: ZeRO-Infinity), all of it in files, recompute full.  Prints predicted and measured step, memory and traffic side by
# side, and fails where bytes differ, resident memory is more than 3 % from its prediction, or the memory was not enough.
# Where PYTHON (python3) has torch and transformers it starts from weights that PyTorch has written, and the first loss must be
# within 1e-4 of PyTorch's forward loss on them (offload_demo.py).
# `make offload-demo` runs it; it wants 32 GB of disk under TMPDIR, better a local one.  A step takes 36 s on two quiet cores.
#
# The limit is a control group's where this user may make one (root), else none is set, and what the processes took is held
# against it.  Runs from the root of the tree; $B is where it was built.
B=${B:-build}
PYTHON=${PYTHON:-python3}
steps=${1:-3} seq=128
limit=10737418240
dir=$(mktemp -d) || exit 1
group=/sys/fs/cgroup/dpx-offload-demo.$$
# shellcheck disable=SC2329
leave() { rm -rf "$dir"; [ ! -d "$group" ] || rmdir "$group" 2>/dev/null; }
trap leave EXIT
trap 'exit 130' INT TERM

free=$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')
[ "$free" -ge 33554432 ] || { echo "offload_demo.sh: $dir has $free KiB free, 32 GiB are needed: set TMPDIR" >&2; exit 2; }
cat >"$dir/plan.json" <<PLAN
{ "dpx_plan": 1, "model": "gpt2-xl", "cluster": "localhost:2", "kernels": "dpx", "seq": $seq, "micro_batch": 1,
  "strategy": "zero3", "dialect": "paper", "precision": "fp32", "dropout": 0, "clip": null, "recompute": "full",
  "deepspeed": { "offload_optimizer": { "device": "nvme" }, "offload_param": { "device": "nvme" } } }
PLAN
"$B/dpxplan" eval "$dir/plan.json" | sed -n '1,/^fits/p'

# English in bytes, a sample of each rank and step; the first two are the first step's.
find README.md docs -name '*.md' | sort | xargs cat >"$dir/data"
pytorch=
if "$PYTHON" -c 'import torch, transformers, safetensors' 2>/dev/null; then
    "$PYTHON" tests/mpi/offload_demo.py weights "$dir/first.safetensors" || exit 1
    pytorch=$("$PYTHON" tests/mpi/offload_demo.py loss "$dir/first.safetensors" "$dir/data" $seq 2) || exit 1
else
    echo "$PYTHON has no torch with transformers: the first loss is not compared (set PYTHON)"
fi

run() {
    "$B/dpxrun" "$dir/plan.json" --steps "$steps" --no-db --json --offload-dir "$dir" --data "$dir/data" --sequential \
        ${pytorch:+--init "$dir/first.safetensors"} >"$dir/out"
}
if mkdir "$group" 2>/dev/null && echo $limit >"$group/memory.max" 2>/dev/null; then
    echo 0 2>/dev/null >"$group/memory.swap.max"
    echo "memory.max of $group: $limit"
    ( echo 0 >"$group/cgroup.procs" && run ) || exit 1
    [ ! -r "$group/memory.peak" ] || echo "memory.peak, page cache of files included: $(cat "$group/memory.peak")"
else
    rmdir "$group" 2>/dev/null
    echo "no control group could be made: nothing limits memory here"
    run || exit 1
fi
tr -d ' \n' <"$dir/out" | tr '{' '\n' | awk -v limit=$limit -v pytorch="$pytorch" '
    function number(name) {
        if (!match($0, "\"" name "\":[-0-9.e+]+"))
            return ""
        return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    }
    function size(x) { return x < 0 ? -x : x }
    number("predicted_step_s") != "" { printf "step: predicted %.1f s (%.1f to %.1f)\n", number("predicted_step_s"), number("predicted_low_s"), number("predicted_high_s") }
    number("median") != ""           { printf "step: measured %.1f s (median)\n", number("median") }
    number("process_peak_bytes") != "" {
        peak = number("process_peak_bytes"); said = number("predicted_process_bytes"); off = (peak - said) / said
        printf "a rank: %d bytes of memory, predicted %d (%+.1f %%)\n", peak, said, 100 * off
        if (2 * peak > limit) { print "more than the limit"; bad = 1 }
        if (size(off) > 0.03) { print "more than 3 % from the prediction"; bad = 1 }
    }
    number("predicted_count") != "" && (number("count") != number("predicted_count") || number("bytes") != number("predicted_bytes")) {
        print "not as predicted: " $0; bad = 1
    }
    match($0, /"loss":\[[^]]*\]/) {
        losses = substr($0, RSTART, RLENGTH); print losses
        split(substr(losses, 9), loss, /[],]/)
        if (pytorch != "") {
            printf "first loss %.7f, of PyTorch forward on the same weights %.7f\n", loss[1], pytorch
            if (size(loss[1] - pytorch) > 1e-4) { print "more than 1e-4 apart"; bad = 1 }
        }
    }
    /"bytes":/ && /"predicted_bytes":/ && /"from":/ { sub(/}.*/, ""); print }
    END { exit bad }'
