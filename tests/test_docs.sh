#!/bin/sh
# tests/test_docs.sh -- the form of README.md and docs/: length, width, links, and that every page is reachable.
# Nothing is run: tests/test_readme.sh and others hold what pages print.
. tests/check.sh
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

pages=$(find docs -name '*.md' | sort)
kept='README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md'

check 'README.md is at most 120 lines and 10 kB' "$(
    [ "$(wc -l <README.md)" -le 120 ] || wc -l README.md
    [ "$(wc -c <README.md)" -le 10240 ] || wc -c README.md)"
check 'no page is longer than 250 lines' "$(
    for page in $pages $(find model -name '*.md'); do n=$(wc -l <"$page"); [ "$n" -le 250 ] || echo "$page: $n lines"; done)"
check 'model/README.md, the guide to the sources, is at most 150 lines' "$(
    [ "$(wc -l <model/README.md)" -le 150 ] || wc -l model/README.md)"

# Tables, printed examples, and a word that cannot be broken, such as an address, may be wider.
wide() {        # FILE...
    awk '/^    / || /^\|/ || /^!\[/ { next }
         { line = $0; wide = 0
           # in columns: bytes but for the later ones of a character
           gsub(/[\200-\277]/, "", line)
           if (length(line) > 100) { sub(/^ *([-*]|[0-9]+\.)? */, "", line); if (line ~ / /) print FILENAME ":" FNR ": " length($0) " columns" } }' "$@"
}
# shellcheck disable=SC2086 # lists of pages
check 'no line of prose is wider than 100 columns' "$(LC_ALL=C; export LC_ALL; wide $kept model/README.md $pages)"

# anchors FILE: what a heading's link is called, as GitHub makes it.
anchors() {
    sed -n '/^```/,/^```/d; s/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' |
        sed -e 's/\[\([^]]*\)\]([^)]*)/\1/g; s/[^a-z0-9 _-]//g; s/ /-/g'
}
# FILE LINE TARGET, of every link but those to the web.  A link may be broken between its text and its address.
links() {
    for page; do
        sed 's/`[^`]*`//g; /^    /d' "$page" | tr '\n' ' ' | grep -oE '\]\([^)]+\)' | sed "s/^](//; s/)\$//; s|^|$page |"
    done | grep -v ' https*:'
}
# shellcheck disable=SC2086
links $kept $pages model/README.md sim/README.md sim/notebook.md calib/README.md exec/README.md lib/README.md >"$tmp/links"
check 'links lead somewhere, to a heading where they name one' "$(
    while read -r page link; do
        to=${link%%#*}
        [ -n "$to" ] && to=$(dirname "$page")/$to || to=$page
        [ -e "$to" ] || { echo "$page: there is no $to"; continue; }
        case $link in
            *.md#*|'#'*) anchors "$to" | grep -qx -- "${link#*#}" || echo "$page: $to has no heading #${link#*#}" ;;
        esac
    done <"$tmp/links")"

# From README.md, link by link.
check 'every page is reachable from README.md' "$(
    echo README.md >"$tmp/seen"
    cp "$tmp/seen" "$tmp/front"
    while [ -s "$tmp/front" ]; do
        while read -r page; do
            awk -v page="$page" '$1 == page { sub(/#.*/, "", $2); if ($2 ~ /\.md$/) print $2 }' "$tmp/links" |
                while read -r link; do realpath -m --relative-to=. "$(dirname "$page")/$link"; done
        done <"$tmp/front" | sort -u | grep -vxFf "$tmp/seen" >"$tmp/next"
        cat "$tmp/next" >>"$tmp/seen"
        mv "$tmp/next" "$tmp/front"
    done
    for page in $pages; do grep -qxF "$page" "$tmp/seen" || echo "$page"; done)"

# A page that a source, a test or another page names by its path from the root is there.
check 'pages that sources name are there' "$(
    grep -rnoIE --include='*.[ch]' --include='*.sh' --include='*.py' --include=Makefile --include='*.md' --include='*.awk' \
            "(^|[^a-zA-Z0-9_/'.-])(docs|model|sim|exec|calib|lib|tests|reports)/[a-z0-9_/-]*\.md" \
            Makefile README.md CONTRIBUTING.md base model sim exec calib lib reports tests tools docs |
        grep -v '^tests/accuracy/\|^tests/golden/' |
        while IFS=: read -r file line name; do
            name=$(echo "$name" | sed 's/^[^a-z]//')
            sed -n "${line}p" "$file" | grep -q "'s $name" && continue          # torchtitan's docs/...
            [ -e "$name" ] || [ -e "$(dirname "$file")/$name" ] || echo "$file:$line: there is no $name"
        done)"

# Editors and validators refuse what a schema lacks.
check "a cluster file's keys are in its schema" "$(
    awk '/static const char \*const keys\[\] = \{/, /NULL/' model/cluster/cluster_json.c | grep -o '"[a-z_0-9]*"' | sort -u |
        while read -r key; do grep -q "^ *$key: {" docs/schemas/cluster.schema.json || echo "docs/schemas/cluster.schema.json has no $key"; done)"

# What a well-kept project has.
check 'license, changes, citation and security are there' "$(
    for f in LICENSE CHANGELOG.md CONTRIBUTING.md CITATION.cff SECURITY.md; do [ -s "$f" ] || echo "$f"; done
    grep -q 'the dpx authors' LICENSE || echo 'LICENSE: whose?')"
# The newest entry is a release with its date, or what comes after one ("unreleased").
check 'the version is one, and its date' "$(
    version=$(sed -n 's/^VERSION := //p' Makefile)
    grep -q "^version: $version\$" CITATION.cff || echo "CITATION.cff is not of $version"
    date=$(sed -n "s/^## $version (\([0-9-]*\))\$/\1/p" CHANGELOG.md)
    [ "$date" ] || grep -q "^## $version (unreleased)\$" CHANGELOG.md || echo "CHANGELOG.md has no $version with its date"
    [ -z "$date" ] || grep -q "^date-released: \"$date\"\$" CITATION.cff || echo "CITATION.cff is not of $date"
    grep -q "^dpx ($version-1) \($([ "$date" ] && echo unstable || echo UNRELEASED)\);" debian/changelog || echo "debian/changelog is not of $version ($date)")"
finish
