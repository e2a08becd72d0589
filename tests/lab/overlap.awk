# overlap.awk -- of a trace that dpxrun or dpxplan wrote (one event a line): seconds in which a
# collective ran, in which the compute stream did, and the share of the first that the second hid.
#     awk -f overlap.awk trace.json
function field(name) { match($0, "\"" name "\":[0-9.]+"); return substr($0, RSTART + length(name) + 3) + 0 }
/"ph":"X"/ {
    kind = /"group":/ ? "comm" : field("tid") == 1 ? "compute" : ""
    if (kind == "")
        next
    n++; at[n] = field("ts"); of[n] = kind; by[n] = 1
    n++; at[n] = at[n - 1] + field("dur"); of[n] = kind; by[n] = -1
}
# A shell's sort would need files; a few thousand events do not.
function sift(from, to,   root, child, t) {
    for (root = from; (child = 2 * root) <= to; root = child) {
        if (child < to && at[order[child]] < at[order[child + 1]])
            child++
        if (at[order[root]] >= at[order[child]])
            return
        t = order[root]; order[root] = order[child]; order[child] = t
    }
}
END {
    for (i = 1; i <= n; i++)
        order[i] = i
    for (i = int(n / 2); i >= 1; i--)
        sift(i, n)
    for (i = n; i > 1; i--) {
        t = order[1]; order[1] = order[i]; order[i] = t
        sift(1, i - 1)
    }
    for (i = 1; i <= n; i++) {
        k = order[i]
        if (busy["comm"] > 0)
            comm += at[k] - last
        if (busy["compute"] > 0)
            compute += at[k] - last
        if (busy["comm"] > 0 && busy["compute"] > 0)
            both += at[k] - last
        busy[of[k]] += by[k]
        last = at[k]
    }
    printf "%.6f %.6f %.4f\n", comm / 1e6, compute / 1e6, (comm > 0 ? both / comm : 0)
}
