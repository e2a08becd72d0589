# answers.awk -- one question of docs/questions or docs/gallery.md: what its answer says that the output beside it does not.
#
# - A figure with a unit (131 GiB, 55 days, 12.6 %) is in the output, the command or the question, as far as it is written out:
#   55 days of 55.71, and 12.8 % more of 112.8 %.  "By hand" arithmetic is test_questions.sh's; a sentence that names another
#   setting (`seq=128k`) is of an output that is not shown.
# - Values that the output lists and says of all their rows "does not fit" are not named as if they did.

function plain(word,    n) {                    # "32k" and "32768" are one
    sub(/[,:;.)]+$/, "", word)
    sub(/^[(`]+/, "", word)
    n = word
    if (n ~ /^[0-9]+k$/) return 1024 * substr(n, 1, length(n) - 1)
    return n
}
function decimals(n) { return n ~ /\./ ? length(n) - index(n, ".") : 0 }
function is_known(n,    i, places, step, shorter) {
    places = decimals(n); step = 10 ^ -places
    shorter = n
    if (places == 0 && n ~ /[1-9]00*$/ && n >= 1000) { sub(/.*[1-9]/, "", shorter); step = 10 ^ length(shorter) }   # round thousands
    for (i = 1; i <= nknown; i++)
        if ((known[i] - n < step && n - known[i] < step) || (known[i] - 100 - n < step && n - known[i] + 100 < step)) return 1
    return 0
}
function take(line,    parts, i, m) {           # numbers of a line
    gsub(/,/, "", line)
    m = split(line, parts, /[^0-9.]+/)
    for (i = 1; i <= m; i++) if (parts[i] ~ /^[0-9]+\.?[0-9]*$/) known[++nknown] = parts[i] + 0
}
/^##+ / { title = $0; take($0); next }
/^(Asked|Suggested) / { take($0); next }
/^    \$ / { take($0); next }
/^    / {
    take($0)
    value = plain($1)
    if (value ~ /^[0-9]+$/) { rows[value]++; if (/does not fit/) no[value]++ }
    next
}
{
    if (/By hand: /) { take(substr($0, index($0, "By hand: "))); sub(/By hand: .*/, "") }
    answer = answer " " $0
}
END {
    gsub(/`[^`]*=[^`]*`/, "OTHER", answer)
    gsub(/`[^`]*`/, "", answer)
    n = split(answer, sentence, /[.;:] +/)
    for (s = 1; s <= n; s++) {
        if (sentence[s] ~ /OTHER/) continue
        m = split(sentence[s], word, " ")
        negated = sentence[s] ~ /(^| )(not|no|nothing|none|neither|nor|beyond|never|fails?|only) ?/
        for (i = 1; i <= m; i++) {
            value = plain(word[i])
            if (value in rows && no[value] == rows[value] && !negated)
                printf "%s: \"%s\" does not fit in any row, and the answer says: %s\n", title, word[i], sentence[s]
            number = word[i]; gsub(/^[(~]+|[,)]+$/, "", number); gsub(/,/, "", number)
            unit = word[i + 1]
            if (number ~ /^[0-9]+\.?[0-9]*$/ && unit ~ /^(GiB|GB|MiB|%|days?|hours|times|s|ms|kWh|W|tokens\/s)[,.:;)]?$/ &&
                !is_known(number))
                printf "%s: %s %s is not in the output\n", title, number, unit
        }
    }
}
