# stage_accuracy.sh -- one-rank plans of shapes that were not calibrated: all predicted first, each again
# by dpxrun just before its run (with the probe of that moment), then run.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
db=$OUT/gpu.db
steps=${STEPS:-8}

plans() {
    [ -s "$dir/plans.tsv" ] && return
    : >"$dir/plans.new"
    i=0
    for shape in gpt-896 gpt-1280 llama-1536 llama-3072; do
        case $shape in
        gpt-896)    m=$(gpt 12 896 14 1024 50257) batches='2x1024 8x512' ;;
        gpt-1280)   m=$(gpt 8 1280 20 1024 50257) batches='2x1024 12x512' ;;
        llama-1536) m=$(llama 8 1536 12 6 4096 32000) batches='3x1024 2x2048' ;;
        *)          m=$(llama 6 3072 24 8 8192 32000) batches='1x1024 2x2048' ;;
        esac
        [ ! "${EMU:-}" ] || { m=$(gpt 2 $((32 + 32 * (i / 8))) 2 64 256); batches='1x32 2x16'; }
        for b in $batches; do
            for precision in bf16 fp32; do
                for recompute in none full; do
                    i=$((i + 1))
                    name=$(printf '%03d' $i)
                    plan "$dir/$name.json" "$(cluster 1)" "$m" "${b#*x}" "${b%x*}" \
                        "\"strategy\": \"ddp\", \"dialect\": \"paper\", \"precision\": \"$precision\", \"recompute\": \"$recompute\""
                    printf '%s\t%s b%s %s recompute %s\n' "$name" $shape "$b" $precision $recompute >>"$dir/plans.new"
                done
            done
        done
    done
    mv "$dir/plans.new" "$dir/plans.tsv"
}
predictions() {
    [ -s "$dir/predicted.tsv" ] && return
    while IFS=$tab read -r name what; do
        "$B/dpxplan" eval "$dir/$name.json" --db "$db" --json >"$dir/eval.json" 2>"$dir/eval.err" || {
            check "$what is predicted" "$(tail -n 3 "$dir/eval.err")"
            continue
        }
        printf '%s\t%s\t%s\n' "$name" "$(number step_s "$dir/eval.json")" "$(number basis "$dir/eval.json")"
    done <"$dir/plans.tsv" >"$dir/predicted.new"
    mv "$dir/predicted.new" "$dir/predicted.tsv"
}
runs() {
    while IFS=$tab read -r name what; do
        grep -q "^$name$tab" "$dir/runs.tsv" 2>/dev/null && continue
        enough 30 || return
        wrong=$(run "$dir/run" "$dir/$name.json" --device cuda --steps "$steps" --db "$db")
        [ ! "$wrong" ] || { check "$what runs" "$wrong"; continue; }
        printf '%s\t%s\t%s\t%s\n' "$name" "$(number predicted_step_s "$dir/run.json")" \
            "$(number median "$dir/run.json")" "$(number predicted_basis "$dir/run.json")" >>"$dir/runs.tsv"
    done <"$dir/plans.tsv"
}
if [ ! -s "$db" ]; then
    skip 'accuracy' 'the GPU is not calibrated: make gpu-check STAGE=calibrate first'
    finish
fi
plans
predictions
runs
touch "$dir/runs.tsv"
LC_ALL=C awk -F'\t' -v planned="$dir/predicted.tsv" -v runs="$dir/runs.tsv" '
    BEGIN { while ((getline line < planned) > 0) { split(line, f, "\t"); p[f[1]] = f[2] }
            while ((getline line < runs) > 0) { split(line, f, "\t"); d[f[1]] = f[2]; m[f[1]] = f[3]; basis[f[1]] = f[4] }
            printf "%-4s %-44s %10s %10s %7s %10s %7s %s\n", "", "", "measured", "predicted", "", "planned", "", "basis" }
    $1 in m { e = d[$1] / m[$1] - 1; q = p[$1] / m[$1] - 1; a = e < 0 ? -e : e; b = q < 0 ? -q : q
              n++; sum += a; plan += b; if (a > worst) worst = a
              printf "%-4s %-44s %8.3fms %8.3fms %+6.1f%% %8.3fms %+6.1f%% %s\n", $1, $2, 1e3 * m[$1], 1e3 * d[$1],
                  100 * e, 1e3 * p[$1], 100 * q, basis[$1] }
    END { if (n) printf "n %d MAPE %.2f %% worst %.1f %%, planned before all runs: MAPE %.2f %%\n", n, 100 * sum / n, 100 * worst, 100 * plan / n
          else print "n 0" }' "$dir/plans.tsv" >"$dir/table.txt"
cat "$dir/table.txt"
n=$(sed -n 's/^n \([0-9]*\).*/\1/p' "$dir/table.txt")
mape=$(sed -n 's/.* MAPE \([0-9.]*\) %.* worst.*/\1/p' "$dir/table.txt")
if [ "$late" ]; then
    skip 'MAPE of at least 30 plans' "$n have run so far"
else
    check 'at least 30 plans ran' "$([ "${n:-0}" -ge 30 ] || echo "$n")"
    check 'MAPE at most 8 %' "$(awk -v e="${mape:-100}" 'BEGIN { if (e > 8) print e " %" }')"
    check 'every prediction rests on what was measured' "$(cut -f4 "$dir/runs.tsv" | grep -vx measured | sort | uniq -c)"
fi
