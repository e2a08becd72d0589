#!/bin/sh
# tests/mpi/test_offload.sh -- plans whose buffers lie in host memory and on disk, run by dpxrun: the losses of the same plan
# without, bit for bit; copies and memory as predicted; files in --offload-dir while it runs and none afterwards; and what a
# disk or another process does to them ends in one line on all ranks.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/mpi/faults.sh
. tests/mpi/faults.sh
mkdir "$dir/files" "$dir/elsewhere"
can_hold

# DeepSpeed swaps tensors of 1 MiB and more: the partition of a sub-group is 1.1 MB on two ranks, and less on four.
sed 's/"vocab_size": 97/"vocab_size": 8192/; s/"hidden_size": 36/"hidden_size": 144/; s/"intermediate_size": 80/"intermediate_size": 640/' \
    "$model/config.json" >"$dir/config.json"

# offload NAME WORLD PRECISION [OFFLOAD]: ZeRO-3 of DeepSpeed, accumulation, clipping, sub-groups.
offload() {
    echo "{\"dpx_plan\": 1, \"model\": \"$dir/config.json\", \"cluster\": \"localhost:$2\", \"kernels\": \"dpx\", \"seq\": 24,
        \"micro_batch\": 1, \"accumulation\": 2, \"clip\": 0.5, \"strategy\": \"zero3\", \"dialect\": \"deepspeed\",
        \"precision\": \"$3\", \"recompute\": \"full\",
        \"deepspeed\": { \"sub_group_size\": 280000, \"stage3_param_persistence_threshold\": 0, \"reduce_bucket_size\": 20000${4:+, $4} }}" \
        >"$dir/$1.json"
}
on() { echo "\"offload_$1\": { \"device\": \"$2\"$([ "$2" = nvme ] && printf ', "nvme_path": "/local"') }"; }
offload plain 2 bf16
offload cpu 2 bf16 "$(on optimizer cpu), $(on param cpu)"
offload nvme 2 bf16 "$(on optimizer nvme), $(on param nvme)"
offload plain4 4 fp32
offload nvme4 4 fp32 "$(on optimizer nvme)"

run() {         # NAME ARGUMENT...: JSON to NAME.out
    name=$1
    shift
    timeout 100 "$dir/dpxrun" "$dir/$name.json" --steps 3 --no-db --json --offload-dir "$dir/files" "$@" >"$dir/$name.out" 2>"$dir/said" ||
        cat "$dir/said"
    hold_answer "$dir/$name.out" dpxrun
    find "$dir/files" -mindepth 1 | sed 's/^/left: /'
}
losses() { sed -n '/"loss": \[/,/\]/p' "$dir/$1.out"; }
same_losses() { losses "$1" >"$dir/a"; losses "$2" >"$dir/b"; [ -s "$dir/a" ] || echo 'no losses'; diff "$dir/a" "$dir/b"; }
# Pairs of a figure and its prediction that follow each other, within one object.
as_predicted() {
    python3 - "$dir/$1.out" 2>&1 <<'P'
import json, sys
d = json.load(open(sys.argv[1]))
for c in d.get("copies", []) + d["comm"]:
    if (c["count"], c["bytes"]) != (c["predicted_count"], c["predicted_bytes"]):
        print(c)
for s in d["memory"].get("spaces", []):
    if s["allocated_peak_bytes"] != s["predicted_allocated_peak_bytes"]:
        print(s)
if not d.get("copies"):
    print("no copies at all")
P
}

said=$(run plain)
check 'a plan runs as it is' "$said"
for plan in cpu nvme; do
    said=$(run $plan)
    check "with $plan, and leaves no file" "$said"
    check "with $plan the losses are the same, bit for bit" "$(same_losses plain $plan)"
done
said=$(run plain4; run nvme4)
check 'on four ranks, too' "$said$(same_losses plain4 nvme4)"
said=$(run nvme --offload-io threads)
check 'files by threads change nothing' "$said$(same_losses plain nvme)"
offload aio 2 bf16 "$(on optimizer nvme), $(on param nvme)"
sed -i 's/"sub_group_size"/"aio": { "block_size": 65536, "queue_depth": 3, "intra_op_parallelism": 2, "single_submit": true }, &/' "$dir/aio.json"
said=$(run aio)
check 'nor do the sizes of aio' "$said$(same_losses plain aio)"
sed -i 's/65536/65537/' "$dir/aio.json"
check 'a block size that files cannot have is refused' "$(run aio | grep -q 'aio.block_size: dpxrun moves files in multiples of 4096' ||
    cat "$dir/said")"
if command -v python3 >/dev/null; then
    check 'copies and memory are as predicted' "$(for p in cpu nvme nvme4; do as_predicted $p; done)"
else
    skip 'copies and memory are as predicted' 'there is no python3'
fi

# ---- what goes wrong ----

long() { start_long --offload-dir "$@" --no-db; }
long_plan() { cp "$dir/nvme.json" "$dir/plan.json"; }
long_plan

sed 's|"model": "[^"]*"|"model": "llama-3.1-405b"|; s|"seq": 24|"seq": 128|' "$dir/cpu.json" >"$dir/large.json"
start "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db
check 'a node with too little memory is known before the first step' "$(judge 60 3 'host memory of a node: needs')"

start "$dir/dpxrun" "$dir/nvme.json" --steps 1 --no-db --offload-dir "$dir/nowhere"
check 'a folder that is not there' "$(judge 20 1 'nowhere: no files can be made in it: No such file')"

long "$dir/files"
find "$dir/files" -name '*-*' -type f | while read -r f; do truncate -c -s 0 "$f"; done
check 'files that another process truncates' "$(judge 20 1 'something else changed it'
    find "$dir/files" -mindepth 1 | sed 's/^/left: /')"

long "$dir/files"
kill_rank 9 1
check 'a rank that is killed' "$(judge 10 1 'rank 1 .*signal 9')"
check 'leaves no file either: the launcher removes them' "$(find "$dir/files" -mindepth 1)"
long "$dir/files"
kill -9 "$(launcher)"
await 10 ended
await 10 none_left
said=$(run nvme)
check 'what all of them killed leave is gone after the next run' "$said"

if mount -t tmpfs -o size=64k none "$full" 2>/dev/null; then
    start "$dir/dpxrun" "$dir/nvme.json" --steps 1 --no-db --offload-dir "$full"
    check 'a disk that is too small' "$(judge 20 1 'no room for')"
    mount -o remount,ro,size=4m "$full"
    start "$dir/dpxrun" "$dir/nvme.json" --steps 1 --no-db --offload-dir "$full"
    check 'a folder that is read-only' "$(judge 20 1 'no files can be made in it: Read-only file system')"
else
    skip 'a disk that is too small' 'mounting a small one needs root'
fi
finish
