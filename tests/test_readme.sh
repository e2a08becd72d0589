#!/bin/sh
# tests/test_readme.sh -- every command that README.md and the pages of docs/ show prints what they show.
# Only the seconds that a search took may differ.
. tests/check.sh
PATH=$(cd "${B:-build}" && pwd):$PATH
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
LC_ALL=C.UTF-8
export XDG_DATA_HOME LC_ALL

# An indented block that starts with "$ " is a command and its output.  Numbers the
# blocks: N.cmd, N.want, N.page.
awk -v tmp="$tmp" '
FNR == 1  { out = "" }
/^    \$ / { n++; print FILENAME >(tmp "/" n ".page"); print substr($0, 7) >(tmp "/" n ".cmd"); out = tmp "/" n ".want"; printf "" >out; next }
/^    /    { if (n && out != "") print substr($0, 5) >out; next }
/^$/       { if (n && out != "") print "" >out; next }
           { out = "" }' README.md docs/*.md

# Blank lines at either end and blanks at the end of a line do not show.
seen() {
    sed -e 's/[[:space:]]*$//' -e 's/; [0-9.]* s$/; N s/' "$1" |
        awk 'NF { for (; blank > 0; blank--) if (some) print ""; print; some = 1; blank = 0; next } { blank++ }'
}

n=1
while [ -f "$tmp/$n.cmd" ]; do
    cmd=$(cat "$tmp/$n.cmd") page=$(cat "$tmp/$n.page")
    case $cmd in
    dpxplan*|cat*)
        sh -c "$cmd" >"$tmp/$n.got" 2>&1
        seen "$tmp/$n.want" >"$tmp/want"
        seen "$tmp/$n.got" >"$tmp/got"
        check "$page: $cmd" "$(diff "$tmp/want" "$tmp/got")" ;;
    esac
    n=$((n + 1))
done
check 'the pages show commands' "$([ $n -gt 2 ] || echo 'none found')"

# A page that a page links to is there.
check 'links lead somewhere' "$(grep -noE '\]\([^)#:]+' README.md docs/*.md | while IFS=: read -r page line link; do
    to=$(dirname "$page")/${link#](}
    [ -e "$to" ] || echo "$page:$line: there is no $to"
done)"
check 'README.md is at most 10 kB' "$([ "$(wc -c <README.md)" -le 10240 ] || wc -c README.md)"
finish
