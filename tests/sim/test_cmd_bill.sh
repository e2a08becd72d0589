#!/bin/sh
# tests/sim/test_cmd_bill.sh -- dpxplan bill: its parts add up, what is not stated stays unknown, bad input has one line.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME
plan=demo/8b-fsdp.json

# field NAME: the first number or text of that name in the document.
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$tmp/doc" | head -1; }
# field_of OBJECT NAME: one of an object, where others have that name too.
field_of() { sed -n "/^ *\"$1\": {/,/}/s/^ *\"$2\": \([^,]*\),\{0,1\}\$/\1/p" "$tmp/doc" | tail -n 1; }
bill() { "$B/dpxplan" bill "$plan" "$@" --json >"$tmp/doc" 2>"$tmp/err" || { echo "exit $?"; cat "$tmp/err"; }; }

# near A B TOLERANCE
near() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; if (!(d <= t * (b < 0 ? -b : b))) print a " is not " b }'; }

# says WORDS OPTIONS...: exit 2 and one line with the words.
says() {
    words=$1
    shift
    "$B/dpxplan" bill "$plan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "bill $*: exit $rc, not 2"
    [ "$(wc -l <"$tmp/err")" = 1 ] || cat "$tmp/err"
    grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}

parts_add_up() {
    bill --tokens 1T --price 2 --mtbf llama3 --storage 5GB/s "$@"
    near "$(awk -v u="$(field useful_s)" -v c="$(field checkpoints_s)" -v l="$(field lost_s)" -v r="$(field restarts_s)" -v w="$(field waiting_s)" \
        -v q="$(field queued_s)" -v m="$(field_of run warm_up_s)" 'BEGIN { printf "%.12g", u + c + l + r + w + q + m }')" "$(field total_s)" 1e-9
    # 1T tokens are 15,258,790 steps of 65,536 on 8 GPUs; 2 a GPU-hour
    near "$(field useful_s)" "$(awk -v s="$(field step_s)" -v n="${NODES:-1}" 'BEGIN { printf "%.12g", s * 15258790 / n }')" 1e-6
    near "$(field cost)" "$(awk -v t="$(field total_s)" -v q="$(field queued_s)" -v g="${GPUS:-8}" 'BEGIN { printf "%.12g", 2 * g * (t - q) / 3600 }')" 1e-9
}
check 'useful steps, checkpoints, lost work, restarts and waiting are the whole; money is GPU-hours' "$(parts_add_up)"
check 'so with preemptions, whose queue is not paid for' "$(parts_add_up --preempted 8h --queue 1h
    near "$(field queued_s)" "$(awk -v t="$(field total_s)" -v q="$(field queued_s)" 'BEGIN { printf "%.12g", (t - q) / 8 }')" 1e-9)"
check 'a queue needs preemptions, and both are times' "$(says '--queue: how often is the job taken away' --tokens 1T --queue 1h; says '--preempted' --tokens 1T --preempted often)"
check 'so with warm-up' "$(parts_add_up --warm-up 20min)"
check 'so with warm-up and spares' "$(GPUS=16 parts_add_up --spares 1 --repair 24h --warm-up 20min)"
check 'so with checkpoints beside training' "$(parts_add_up --async)"
check 'so with spares that are paid for' "$(GPUS=16 parts_add_up --spares 1 --repair 24h)"
check 'so with fewer nodes for a while' "$(NODES=2 GPUS=24 parts_add_up --set nodes=2 micro_batch=1 --spares 1 --repair 240h --shrink --mtbf 2000h)"
check 'so with copies in the memory of another node' "$(NODES=2 GPUS=16 parts_add_up --set nodes=2 --neighbour 10 --memory-lost 0.1)"

# 100 steps of 65,536 tokens, a checkpoint every 10: nine or ten of them, no interruption
measured_step() {
    bill --tokens 6553600 --step 850ms --every 10 --storage 10GB/s
    near "$(field useful_s)" 85 1e-9
    near "$(field billed_step_s)" 0.85 1e-12
    bill --tokens 6553600 --every 10 --storage 10GB/s
    near "$(field billed_step_s)" "$(field step_s)" 1e-12
    says '"850" has no unit\|--step' --tokens 1B --step 850
}
check 'a measured step takes the place of the predicted one' "$(measured_step)"

# What the cluster states is what options state; an option goes before it.
of_the_cluster() {
    printf '{ "gpu": "h100", "nodes": 4, "gpus_per_node": 8, "storage": { "gb_per_s": 9, "node_gb_per_s": 3, "training_network": true },
        "failures": { "gpu_hours": 2000, "recover_s": 90, "spares": 1, "repair_hours": 24 } }' >"$tmp/own.json"
    printf '{ "gpu": "h100", "nodes": 4, "gpus_per_node": 8 }' >"$tmp/bare.json"
    set -- llama-3.1-8b --seq 8k --tokens 100B --async --json
    "$B/dpxplan" bill "$@" --cluster "$tmp/own.json" 2>/dev/null | grep -v '"name"' >"$tmp/own"
    "$B/dpxplan" bill "$@" --cluster "$tmp/bare.json" --storage 9GB/s --storage-node 3GB/s --training-network --mtbf 2000h --recover 90s --spares 1 \
        --repair 24h 2>/dev/null | grep -v '"name"' >"$tmp/bare"
    sed '/"storage": {/,/}/d; /"failures": {/,/}/d' "$tmp/own" | diff - "$tmp/bare" | grep '^[<>].*: ' | head -n 5
    "$B/dpxplan" bill "$@" --cluster "$tmp/own.json" --mtbf llama3 2>&1 | grep -q '"rate": "llama3"' || echo '--mtbf does not go before the cluster'
    for bad in '"storage": { "gbps": 9 }' '"failures": { "rate": "llama3", "gpu_hours": 9 }' '"failures": { "spares": 1 }' '"failures": { "rate": "none" }'; do
        printf '{ "gpu": "h100", "nodes": 1, "gpus_per_node": 8, %s }' "$bad" >"$tmp/bad.json"
        "$B/dpxplan" bill "$@" --cluster "$tmp/bad.json" >"$tmp/out" 2>"$tmp/err"
        [ $? = 2 ] && [ "$(grep -c '^dpx: ' "$tmp/err")" -ge 1 ] || { echo "$bad:"; cat "$tmp/err"; }
    done
}
check 'storage and interruptions are keys of a cluster' "$(of_the_cluster)"

# 64 GPUs on 8 nodes: 64/60000 + 8/20000 + 1/2000 an hour
by_cause() {
    set -- --set nodes=8 --tokens 1T --storage 20GB/s
    bill "$@" --mtbf gpu=60000h,node=20000h,network=2000h
    near "$(field mtbf_of_the_job_s)" "$(awk 'BEGIN { printf "%.12g", 3600 / (64 / 60000 + 8 / 20000 + 1 / 2000) }')" 1e-9
    sed -n 's/^ *"share": \([^,]*\),*$/\1/p' "$tmp/doc" | awk '{ s += $1; n++ } END { if (n != 3 || s < 1 - 1e-9 || s > 1 + 1e-9) print n " shares, " s }'
    cp "$tmp/doc" "$tmp/options"
    bill --tokens 1T --storage 20GB/s \
        --set nodes=8 cluster.failures.gpu_hours=60000 cluster.failures.node_hours=20000 cluster.failures.network_hours=2000
    grep '_s": \|share' "$tmp/options" >"$tmp/a"
    sed '/"failures": {/,/}/d' "$tmp/doc" | grep '_s": \|share' | diff "$tmp/a" - | head -n 5
    for pair in storage.training_network=true failures.rate=opt-175b host=false; do
        "$B/dpxplan" bill "$plan" --tokens 1T --set nodes=8 cluster.$pair >"$tmp/out" 2>"$tmp/err" || cat "$tmp/err"
    done
    bill "$@" --mtbf llama3
    near "$(field mtbf_of_the_job_s)" "$(awk 'BEGIN { printf "%.12g", 54 * 86400 * 16384 / 419 / 64 }')" 1e-9
    near "$(sed -n '/"cause": "network"/,/}/s/^ *"share": //p' "$tmp/doc" | tr -d ,)" "$(awk 'BEGIN { printf "%.12g", 35 / 419 }')" 1e-9
    "$B/dpxplan" bill "$plan" "$@" --mtbf node=20000h | grep -q 'Not stated, so not counted: GPUs, the network' || echo 'what is not stated is not named'
    says 'a job on one node does not use the network' --tokens 1T --mtbf network=2000h
    says 'is not a cause with its time' --tokens 1T --mtbf gpu=60000h,disk=5h
    says 'is not a cause with its time' --tokens 1T --mtbf gpu=60000h,
    says 'is there twice' --tokens 1T --mtbf gpu=60000h,gpu=5h
    says 'of which unit' --tokens 1T --mtbf gpu=60000
    says 'a time is more than 0' --tokens 1T --mtbf node=0h
    printf '{ "gpu": "h100", "failures": { "rate": "llama3", "node_hours": 9 } }' >"$tmp/bad.json"
    says '"rate" has all causes' --tokens 1T --set cluster.failures.rate=llama3 cluster.failures.node_hours=9
}
check 'rates of GPU, node and network add, and each has its share' "$(by_cause)"

# 100 steps without interruptions: the first start is the only one
warm_up() {
    bill --tokens 6553600 --every 10 --storage 10GB/s --warm-up 3min
    near "$(field_of run warm_up_s)" 180 1e-9
    bill --tokens 1T --mtbf 500h --storage 10GB/s
    near "$(field_of run warm_up_s | sed 's/^0\.0$/1/')" 1 1e-9
    a=$(field recover_s)
    bill --tokens 1T --mtbf 500h --storage 10GB/s --set cluster.failures.warm_up_s=180
    near "$(field recover_s)" "$(awk -v a="$a" 'BEGIN { printf "%.12g", a + 180 }')" 1e-9
    says '--warm-up' --tokens 1T --warm-up 3
}
check 'warm-up is a part of each restart and of the first start' "$(warm_up)"

# 20,000 samples of 512 tokens, three times, are 3,750 sequences of 8,192: 469 steps of 8
packed() {
    bill --samples 20k --epochs 3 --packed 512
    [ "$(field steps)" = 469 ] || field steps
    bill --samples 20k --epochs 3 --packed 8192
    [ "$(field steps)" = 7500 ] || field steps
    says 'of how many samples' --tokens 1T --packed 512
    says 'those of a sequence' --samples 20k --packed 9000
    says 'those of a sequence' --samples 20k --packed 0.5
}
check 'packed samples fill sequences' "$(packed)"

requeue() {
    GPUS=8 parts_add_up --requeue --queue 1h
    says 'for how long? give --queue' --tokens 1T --requeue
    says 'leave out --spares' --tokens 1T --requeue --queue 1h --spares 1 --repair 2h
}
check 'a failed job may go through the queue' "$(requeue)"

# What search printed is its plan.
of_a_search() {
    "$B/dpxplan" search --model gpt2 --cluster 8xh100 --seq 1024 --global-batch 64 --json >"$tmp/search.json" 2>"$tmp/err" || cat "$tmp/err"
    "$B/dpxplan" search --model gpt2 --cluster 8xh100 --seq 1024 --global-batch 64 -o "$tmp/plan.json" >"$tmp/out" 2>"$tmp/err"
    for p in search plan; do "$B/dpxplan" bill "$tmp/$p.json" --tokens 1B --mtbf llama3 --storage 1GB/s --json >"$tmp/$p" 2>"$tmp/err" || cat "$tmp/err"; done
    cmp "$tmp/search" "$tmp/plan"
    echo '{ "dpx": 1, "plans": [] }' | "$B/dpxplan" bill - --tokens 1B >"$tmp/out" 2>"$tmp/err" && echo 'exit 0'
    grep -q 'in which no plan fits' "$tmp/err" || cat "$tmp/err"
}
check 'the answer of a search is billed as its plan' "$(of_a_search)"

# 4 nodes of 3.2 Tbit/s; half of 400 GB/s at most for the copy to a neighbour: bytes of a node / 200 GB/s later it counts
beside() {
    bill --set nodes=4 --tokens 1T --mtbf rsc-1 --storage 20GB/s --async
    near "$(field beside_checkpoint)" 1 1e-12
    alone=$(field blocked_s)
    bill --set nodes=4 --tokens 1T --mtbf rsc-1 --storage 900GB/s --async --training-network
    awk -v b="$(field beside_checkpoint)" 'BEGIN { if (!(b > 1 && b < 2)) print "a step takes " b " times as long" }'
    awk -v a="$alone" -v b="$(field blocked_s)" 'BEGIN { if (!(b > a)) print "blocked " b " s, alone " a " s" }'
    near "$(field blocked_s)" "$(awk -v s="$(field snapshot_s)" -v w="$(field node_bytes)" -v b="$(field beside_checkpoint)" \
        'BEGIN { printf "%.12g", s + w / 200e9 * (1 - 1 / b) }')" 1e-9
    says 'training-network: is for --async' --tokens 1T --training-network
}
check 'a checkpoint that shares the network of training slows its steps' "$(beside)"

# 2,000 samples on 8 GPUs of one sample each are 250 forward passes
evaluation() {
    bill --tokens 6553600 --every 10 --storage 10GB/s --eval-samples 2000 --eval-every 50
    near "$(field billed_step_s)" "$(awk -v s="$(field step_s)" -v e="$(field evaluation_s)" 'BEGIN { printf "%.12g", s + e / 50 }')" 1e-9
    awk -v s="$(field step_s)" -v e="$(field evaluation_s)" 'BEGIN { f = e / 250 / s; if (!(f > 0.2 && f < 0.4)) print "forward is " f " of a step with recompute" }'
    says 'how often? give --eval-every' --tokens 1T --eval-samples 5
    says 'of how many samples' --tokens 1T --eval-every 5
}
check 'evaluation passes are forward passes of all ranks' "$(evaluation)"

same_bill() {
    bill --tokens 100B --mtbf rsc-1 --storage 2GB/s --spares 1 --repair 8h --mtbf 500h
    cp "$tmp/doc" "$tmp/first"
    bill --tokens 100B --mtbf rsc-1 --storage 2GB/s --spares 1 --repair 8h --mtbf 500h
    cmp "$tmp/first" "$tmp/doc"
}
check 'the same question has the same answer' "$(same_bill)"

unknown() {
    bill --tokens 1T
    [ "$(field write_s) $(field mtbf_of_a_gpu_s) $(field run)" = 'null null null' ] || cat "$tmp/doc"
    bill --tokens 1T --mtbf bloom
    [ "$(field write_s) $(field run)" = 'null null' ] || cat "$tmp/doc"
    "$B/dpxplan" bill "$plan" --tokens 1T | grep -c UNKNOWN | grep -qx 2 || echo 'UNKNOWN is not said twice'
}
check 'without a storage and a rate seconds and interruptions are unknown' "$(unknown)"

# 96,363,134,976 bytes at 10 GB/s and once to host memory, every 100 steps of 18,750
without_failures() {
    bill --samples 50k --epochs 3 --storage 10GB/s --every 100
    near "$(field checkpoints_s)" "$(awk -v c="$(field snapshot_s)" 'BEGIN { printf "%.12g", 187.5 * (9.6363134976 + c) }')" 1e-9
    [ "$(field steps)" = 18750 ] || field steps
}
check 'where nothing fails checkpoints are all that comes on top' "$(without_failures)"

# 2028 is a leap year: 29 February; 19,710 s a day more or less do not matter to the day.
dates() {
    for row in '2028-02-28 100B 2028-03-22' '2026-12-31 1B 2026-12-31'; do
        # shellcheck disable=SC2086
        set -- $row
        bill --tokens "$2" --mtbf 1000000h --storage 100GB/s --start "$1"
        [ "$(field ends)" = "$(date -u -d "$1 + $(field total_s | sed 's/\..*//') seconds" +%F)" ] || echo "$1 and $(field total_s) s: $(field ends)"
    done
}
check 'dates are those of the calendar' "$(dates)"

bad() {
    says 'of how much training' --mtbf llama3
    says 'give one of them' --tokens 1T --samples 5
    says 'neither a published rate' --tokens 1T --mtbf llama9
    says 'of which unit' --tokens 1T --mtbf 5000
    says 'not a rate' --tokens 1T --storage 200GB
    says 'bits or bytes' --tokens 1T --storage 200Gb/s
    says 'bits or bytes' --tokens 1T --storage-node 5gib/s
    says 'at most a million years' --tokens 1T --mtbf 1e300h
    says 'is not a published rate' --tokens 1T --set cluster.failures.rate=llama4
    plan=demo/grpo.json says 'dpxplan phases reads it' --tokens 1T
    says 'is not known of this cluster' --tokens 1T --storage disk
    says 'give --repair' --tokens 1T --spares 2
    says 'give --spares' --tokens 1T --repair 2h
    says 'there is one node' --tokens 1T --neighbour 5
    says 'neither a number of steps nor a time' --tokens 1T --storage 1GB/s --every 0
    says 'is not a date' --tokens 1T --start tomorrow
    says 'no such day' --tokens 1T --start 2027-02-29
    says 'of how many samples' --tokens 1T --epochs 3
    says 'at most 1' --tokens 1T --memory-lost 2
    says 'are being repaired at once' --tokens 15T --set nodes=1024 --mtbf 1000h --storage 1TB/s --spares 100000 --repair 2000h
}
check 'bad input is refused with one line' "$(bad)"

# 400 Gbit/s are 50 GB/s
bits() {
    bill --tokens 1T --mtbf llama3 --storage 400Gbit/s
    a=$(field write_s)
    bill --tokens 1T --mtbf llama3 --storage 50GB/s
    near "$a" "$(field write_s)" 1e-12
}
check 'a storage may be stated in bits' "$(bits)"

# The row of as many GPUs costs what the bill says: nobody pays for the queue there either.
worlds_cost() {
    "$B/dpxplan" bill "$plan" --set nodes=4 --tokens 1T --price 2 --mtbf llama3 --storage 20GB/s --preempted 8h --queue 1h --worlds >"$tmp/out" 2>"$tmp/err"
    a=$(sed -n 's/.*of them useful: \([0-9,]*\) .*/\1/p' "$tmp/out")
    b=$(sed -n 's/^ *32 .* \([0-9,]*\)$/\1/p' "$tmp/out")
    { [ -n "$a" ] && [ "$a" = "$b" ]; } || echo "$a in the bill, $b in the table"
    grep -q '32 GPUs end first; 8 take the fewest GPU-hours' "$tmp/out" || sed -n '/^With the same/,$p' "$tmp/out"
}
check 'other numbers of GPUs are paid for alike' "$(worlds_cost)"

endless() {
    "$B/dpxplan" bill "$plan" --tokens 1T --mtbf 1h --storage 1GB/s --every 12h >"$tmp/out" 2>"$tmp/err"
    [ $? = 3 ] || echo 'not exit 3'
    grep -q 'would not end' "$tmp/out" || cat "$tmp/out"
}
check 'a run that would not end says so' "$(endless)"

# Llama 3 405B ran at more than 90 % effective time with 419 interruptions in 54 days (section 3.3.4), with 2 TB/s of storage.
llama3() {
    plan=$tmp/405b.json
    echo '{"dpx_plan":1,"model":"llama-3.1-405b","cluster":"2048x8xh100","seq":8192,"micro_batch":1,"accumulation":16,"strategy":"zero1","dialect":"megatron",
        "precision":"bf16","parallel":{"tensor":8,"pipeline":16,"first_stage_less_layers":1,"last_stage_less_layers":1}}' >"$plan"
    "$B/dpxplan" bill "$plan" --tokens 15.6T --mtbf llama3 --storage 2TB/s --json >"$tmp/doc" 2>"$tmp/err" || [ $? = 3 ] || cat "$tmp/err"
    awk -v g="$(field goodput)" 'BEGIN { if (!(g > 0.9 && g < 1)) print "effective time " g }'
    awk -v b="$(field rank_bytes)" 'BEGIN { if (!(b > 1e6 && b < 4e9)) print b " bytes a GPU; published 1 MB to 4 GB" }'
}
check 'the Llama 3 run had more than 90 % effective time' "$(llama3)"
finish
