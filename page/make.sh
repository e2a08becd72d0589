#!/bin/sh
# page/make.sh -- makes $B/dpx.html, the planner in one file: the library for WebAssembly, and what lies beside this script.
# What is missing is said by name, exit 1.  `page/make.sh served` prints the same page without the library: dpxplan serve gives it out and
# answers its questions.
set -e
# Colours are those of reports, light and dark: what lies around figures, and in them --c0 to --c12.
palette() {
    sed -n '/ surfaces\[\] = {/,/^};/p' base/chart/chart.c | grep -o '{ "[a-z]*", "#[0-9a-f]*", "#[0-9a-f]*" }' |
        awk -F '"' -v of="$1" '{ printf "--%s:%s;", $2, of == "light" ? $4 : $6 }'
    sed -n "/ $1\[NCOLOURS\] = {/,/}/p" base/chart/chart.c | grep -o '#[0-9a-f]*' |
        awk '{ printf "%s--c%d:%s", (NR > 1 ? ";" : ""), NR - 1, $0 }'
}
style() {
    sed "s/@LIGHT@/$(palette light)/; s/@DARK@/$(palette dark)/" page/style.css
}
scripts() {
    cat page/words.js page/library.js page/question.js page/chart.js page/knobs.js page/figures.js page/learn.js page/page.js
}
fits() {
    for f in calib/measured/*.fits; do
        printf '<script type="text/plain" data-fits="%s">\n' "${f##*/}"
        cat "$f"
        printf '</script>\n'
    done
}
# FRAME: the page, of which a whole line may stand for a file.
page() {
    while IFS= read -r line; do
        case $line in
        @STYLE@)   style ;;
        @SCRIPT@)  scripts ;;
        @WORKER@)  cat $W/dpx.js page/worker.js ;;
        @LIBRARY@) base64 -w 0 $W/dpx.wasm; echo ;;
        @FITS@)    fits ;;
        *)         printf '%s\n' "$line" ;;
        esac
    done
}
# Nothing stands in the library's place, and requests to where it came from are allowed.
served() {
    sed "/@LIBRARY@/d; /@FITS@/d; s/@WORKER@//; s/default-src 'none';/default-src 'none'; connect-src 'self';/; \
        s/Computed here, in your browser: nothing is sent anywhere\./Computed by dpxplan on this machine: nothing leaves it./" page/index.html
}

if [ "$1" = served ]; then
    # What asks by HTTP is in no other page.
    scripts() { cat page/served.js page/words.js page/library.js page/question.js page/chart.js page/knobs.js page/figures.js page/learn.js page/page.js; }
    served | page
    exit
fi
B=${B:-build} W=build-wasm
export NODE_PATH="${NODE_PATH:-/usr/share/nodejs}"
page/third.sh $W/third
${MAKE:-make} --no-print-directory WASM=1 $W/dpx.js
mkdir -p "$B"
page <page/index.html >"$B/dpx.html.new"
mv "$B/dpx.html.new" "$B/dpx.html"
echo "the page: $B/dpx.html, $(wc -c <"$B/dpx.html") bytes"
