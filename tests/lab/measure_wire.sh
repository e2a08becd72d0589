#!/bin/sh
# tests/lab/measure_wire.sh [FOLDER] -- `make lab-wire`: what sending fewer bytes between two nodes of an emulated cluster (lab.sh) brings,
# predicted and measured, on a link of 4 Gbit/s, 1 Gbit/s and 100 Mbit/s: ZeRO-3 with each of ZeRO++'s parts and with all, DDP with its hooks.
#
#     RATES="4000 1000 100"   Mbit/s, falling    STEPS=9   of a run, whose median counts, as predictions are made of medians
#     SECONDS_CALIBRATION=170           of each link's calibration, at least (dpxcal --quick)
#
# For each link: the nodes are calibrated, each plan is predicted from that and then run (dpxrun commits its prediction before the first step).  Then the table: steps, how far
# predictions are off, whether an option's gain has the sign that was predicted, and the speed at which `dpxplan explain PLAIN WITH` says
# that both take as long.  At the end, whether measurement puts that speed where each link's calibration does: between two neighbouring
# links of which the option pays on one and not on the other, or beyond the first or last link where it pays on none or on all.
# FOLDER (build/lab-wire) keeps databases, plans and what was printed; a calibration that is there is used again.
#
# Nothing else should run; each node has half of the machine's cores, on which its two ranks and the kernel's copies are.  Beside the
# median of a run is its 10th percentile, by which what else runs shows.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/lab/lab.sh
. tests/lab/lab.sh
lab_begin 'fewer bytes between two nodes'
dir=${1:-$B/lab-wire}
mkdir -p "$dir" || exit 1
dir=$(cd "$dir" && pwd)
lab_llama "$dir/config.json" 384 1024

stage3='"strategy": "zero3", "dialect": "deepspeed", "deepspeed": { "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0,
    "stage3_max_reuse_distance": 0, "reduce_bucket_size": 1000000'
weights=', "zero_quantized_weights": true' secondary=', "zero_hpz_partition_size": 2' gradients=', "zero_quantized_gradients": true'
ddp='"strategy": "ddp", "dialect": "torch", "ddp": { "bucket_cap_mb": 4'

# NAME BESIDE KEYS, a line each; BESIDE: the plan without the option.
plans() {
    cat <<END
zero3 - $(echo $stage3) }
qwZ zero3 $(echo $stage3$weights) }
hpZ zero3 $(echo $stage3$secondary) }
qgZ zero3 $(echo $stage3$gradients) }
all-three zero3 $(echo $stage3$weights$secondary$gradients) }
ddp - $ddp }
ddp-fp16 ddp $ddp, "comm_hook": "fp16_compress_hook" }
ddp-bf16 ddp $ddp, "comm_hook": "bf16_compress_hook" }
ddp-powersgd ddp $ddp, "comm_hook": "powerSGD_hook", "PowerSGDState": { "matrix_approximation_rank": 4, "start_powerSGD_iter": 2 } }
END
}

# Whose calibration it is: the emulated node's, which has another name each time.
calibrated() { "$B/dpxcal" show --db "$dir/$1.db" | sed -n '1s/:.*//p'; }

write_plan() {  # FILE MBIT KEYS
    cat >"$1" <<PLAN
{ "dpx_plan": 1, "model": "$dir/config.json", "kernels": "dpx", "seq": 32, "micro_batch": 1, "precision": "fp32", $3,
  "cluster": { "name": "lab", "host": true, "nodes": 2, "gpus_per_node": 2, "gpu": { "name": "cpu", "memory_bytes": 2000000000 },
    "calibration": "$(calibrated "$2")",
    "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": $(awk -v r="$2" 'BEGIN { print r / 8000 }') } } }
PLAN
}

# Each plan's line of $dir/MBIT.tsv: name, the plan beside it, predicted and measured seconds, their 10th percentile.
rows() {        # MBIT
    plans | while read -r name beside keys; do
        write_plan "$dir/$name-$1.json" "$1" "$keys"
        LAB_SECONDS=400 lab_run 2 "$B/dpxrun" "$dir/$name-$1.json" --threads 1 --steps "${STEPS:-9}" --db "$dir/$1.db" --json >"$dir/run.json" 2>"$dir/said" ||
            { cat "$dir/said" >&2; continue; }
        printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$beside" "$(lab_figure "$dir/run.json" predicted_step_s)" \
            "$(lab_figure "$dir/run.json" median)" "$(lab_figure "$dir/run.json" p10)"
    done
}

crossing() {    # MBIT NAME BESIDE: Mbit/s, or "-"
    "$B/dpxplan" explain "$dir/$3-$1.json" "$dir/$2-$1.json" --db "$dir/$1.db" --json 2>/dev/null | tr -d ' \n' |
        sed -n 's/.*"crossover":{"bytes_per_s":\([0-9.e+]*\).*/\1/p' | awk '{ printf "%.0f", $1 * 8e-6 } END { if (!NR) printf "-" }'
}

for rate in ${RATES:-4000 1000 100}; do
    lab_rate "$rate"
    [ -s "$dir/$rate.db" ] || LAB_SECONDS=1500 lab_run 2 "$B/dpxcal" run --quick --seconds "${SECONDS_CALIBRATION:-170}" --ranks 4 --threads 1 \
        --model "$dir/config.json" --seq 32 --micro-batch 1 --precision fp32 --db "$dir/$rate.db"
    rows "$rate" >"$dir/$rate.tsv"
    while IFS="$(printf '\t')" read -r name beside p m least; do
        echo "$name $beside $p $m $([ "$beside" = - ] && echo - || crossing "$rate" "$name" "$beside") $least"
    done <"$dir/$rate.tsv" >"$dir/$rate.rows"
    echo "$rate Mbit/s                 predicted    measured   off by    gain predicted, measured    sign   as long at, Mbit/s"
    awk '
        { p[$1] = $3; m[$1] = $4; off = $3 / $4 - 1; sum += off < 0 ? -off : off
          off10 = $3 / $6 - 1; sum10 += off10 < 0 ? -off10 : off10
          printf "  %-16s %9.3f s %9.3f s %+7.1f %%", $1, $3, $4, 100 * off
          if ($2 != "-") {
              gp = 1 - $3 / p[$2]; gm = 1 - $4 / m[$2]; right = gp * gm > 0; n++; good += right
              printf "   %+6.1f %%  %+6.1f %%            %s   %s", 100 * gp, 100 * gm, right ? "right" : "WRONG", $5
          }
          printf "\n" }
        END { printf "  MAPE %.1f %% of %d medians (of 10th percentiles %.1f %%), sign right in %d of %d\n",
                     100 * sum / NR, NR, 100 * sum10 / NR, good, n }' "$dir/$rate.rows"
done

# Rates fall: gain[option, i] on link i, said[option, i] by its calibration.  A stated speed is right where the gains on either side of it
# differ as stated; one beyond all links, or none at all, where they do not differ.
echo 'As long at, stated by the calibration of each link, and between which links measurement finds it'
for rate in ${RATES:-4000 1000 100}; do sed "s/^/$rate /" "$dir/$rate.rows"; done | awk '
    { if ($1 != link[n]) link[++n] = $1
      error = $4 / $5 - 1; off += error < 0 ? -error : error; rows++
      m[$2, n] = $5 }
    $3 != "-" { if (n == 1) option[++k] = $2
                gain[$2, n] = m[$3, n] - $5; said[$2, n] = $6 }
    END {
        for (i = 1; i <= k; i++) {
            o = option[i]; high = "faster"; low = 0; changes = 0
            for (j = 1; j < n; j++)
                if (gain[o, j] * gain[o, j + 1] < 0) { high = link[j]; low = link[j + 1]; changes++ }
            if (!changes && gain[o, 1] > 0) low = link[1]
            else if (!changes) { high = link[n]; low = 0 }
            where = changes > 1 ? "changes more than once" : changes ? low " to " high : low ? "above " low : "below " high
            printf "  %-16s measured: %s", o, where
            printf "; stated:"
            for (j = 1; j <= n; j++) {
                x = said[o, j]
                ok = changes <= 1 && (x == "-" ? !changes : x + 0 >= low + 0 && (high == "faster" || x + 0 <= high + 0))
                printf " %s%s", x, ok ? "" : " (WRONG)"; right += ok; all++
            }
            printf "\n"
        }
        printf "  stated speeds that lie where measurement finds them: %d of %d\n", right, all
        printf "  MAPE over all links %.1f %% of %d medians\n", 100 * off / rows, rows
    }'
