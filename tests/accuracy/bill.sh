#!/bin/sh
# tests/accuracy/bill.sh -- part of `make accuracy-public`: checkpoints as published beside those of dpxplan bill.
#
# Sources, each read for its row: BigScience 176B Model (bigscience.notion.site): "only the bf16 weights are 329GB, the full checkpoint with
# optimizer states is 2.3TB" (binary units: 176.2B x 2 bytes are 328 GiB).  Gemini (SOSP 2023): "it takes 42 minutes to checkpoint the model
# states of MT-NLG to the remote persistent storage when the bandwidth is 20Gbps".
# The Llama 3 Herd of Models (2407.21783): "higher than 90% effective training time" in a 54-day period of 405B on 16,384 H100, with tensors cut
# 8 ways and 16 stages (one block fewer on the first and the last), 2,048 samples of 8,192 tokens a step; storage: Tectonic, 240 PB on 7,500
# servers with SSDs, 2 TB/s sustained and 7 TB/s at peak (3.3.1); its rate of interruptions is table 5's, and how long one takes is MegaScale's.
# Daly, A higher order estimate of the optimum checkpoint interval (FGCS 22, 2006), figures 3 to 5: with 5 minutes a checkpoint and 10 a restart
# the best interval is 117, 57 and 9.1 minutes for 24 hours, 6 hours and 15 minutes between interruptions.
# Not judges: ByteCheckpoint (2407.20143), DataStates-LLM (2601.16956) and MegaScale (2402.15627) state speed-ups in what could be read of them, no
# bytes or seconds of one configuration; PyTorch's and IBM's 148.8 s and 6.3 s of a 7B model (pytorch.org/blog/reducing-checkpointing-times) name
# no storage; NVIDIA's 782 GB of a 70B model (its blog about nvCOMP) counts gradients, and its figures of asynchronous checkpoints are speed-ups.
# Runs from the root of the tree; $B is where it was built.
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp
export XDG_DATA_HOME

# field NAME MODEL CLUSTER KEYS OPTION...: a number of the bill
field() {
    name=$1
    printf '{"dpx_plan": 1, "model": "%s", "cluster": "%s", "seq": 2048, "micro_batch": 1, "precision": "bf16", %s}' "$2" "$3" "$4" >"$tmp/plan.json"
    shift 4
    "$B/dpxplan" bill "$tmp/plan.json" --tokens 1B "$@" --json 2>/dev/null | tr -d ' ,"' | sed -n "s/^$name://p" | head -n 1
}
row() {         # WHAT PUBLISHED UNIT SCALE OURS
    awk -v what="$1" -v p="$2" -v u="$3" -v s="$4" -v o="$5" 'BEGIN {
        if (!(o > 0)) { print what ": no figure"; exit 1 }
        printf "%-64s %8.4g %-4s %8.4g %+6.1f %%\n", what, p, u, o / s, 100 * (o / s / p - 1) }'
}
zero1='"strategy": "zero1", "dialect": "deepspeed"' zero3='"strategy": "zero3", "dialect": "deepspeed"'
echo 'checkpoints, published and as bill has them'
row 'BLOOM 176B, bf16 weights' 329 GiB 1073741824 "$(field weights_bytes bloom-176b 48x8xa100-80gb "$zero1")" &&
row 'BLOOM 176B, with optimizer states' 2.3 TiB 1099511627776 "$(field bytes bloom-176b 48x8xa100-80gb "$zero1")" &&
row 'MT-NLG 530B, fp32 weights and moments at 20 Gbit/s' 42 min 60 "$(field write_s megatron-530b 280x8xa100-80gb "$zero3" --storage 2.5GB/s)" || exit 1

# 54 days are about 7T tokens at the predicted step.
cat >"$tmp/plan.json" <<'PLAN'
{ "dpx_plan": 1, "model": "llama-3.1-405b", "cluster": "2048x8xh100", "seq": 8192, "micro_batch": 1, "accumulation": 16, "strategy": "zero1",
  "dialect": "megatron", "precision": "bf16",
  "parallel": { "tensor": 8, "pipeline": 16, "first_stage_less_layers": 1, "last_stage_less_layers": 1 } }
PLAN
"$B/dpxplan" bill "$tmp/plan.json" --tokens 7T --mtbf llama3 --storage 2TB/s --json 2>/dev/null | tr -d ' ,"' | sed -n 's/^goodput://p' |
    awk '{ got = $1; printf "%-64s %8s %-4s %8.4g\n", "Llama 3 405B, 16,384 H100: effective training time", "> 90", "%", 100 * got } END { exit !(got > 0.9) }' || exit 1

# daly FIELD HOURS OPTION...: of a bill with steps of a second.  96.4 GB are 299.7 s of writing and 0.2 s of copying.
daly() {
    name=$1 hours=$2
    shift 2
    "$B/dpxplan" bill demo/8b-fsdp.json --tokens 100B --step 1s --storage 321.5MB/s --recover 300s --mtbf "$(awk -v h="$hours" 'BEGIN { print 8 * h }')h" "$@" \
        --json 2>/dev/null | tr -d ' ,"' | sed -n "s/^$name://p" | head -n 1
}
for pair in '24 117' '6 57' '0.25 9.1'; do
    row "Daly: best interval, interrupted every ${pair% *} h" "${pair#* }" min 60 "$(daly every_s "${pair% *}")" || exit 1
done
closed=$(daly total_s 6)
drawn=$(daly total_s 6 --spares 1000 --repair 1h)
row 'closed form beside 400 drawn runs, interrupted every 6 h' "$(awk -v s="$drawn" 'BEGIN { print s / 86400 }')" days 86400 "$closed" || exit 1
awk -v a="$closed" -v b="$drawn" 'BEGIN { exit !(a / b > 0.99 && a / b < 1.01) }'
