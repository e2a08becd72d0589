#!/bin/sh
# tests/test_gallery.sh -- every command of docs/gallery.md prints what the page shows and draws its picture.
. tests/check.sh
page=docs/gallery.md

check 'there are five questions, each with a picture' "$(
    [ "$(grep -c '^## .*?$' $page)" -ge 5 ] || echo 'fewer than five questions'
    grep -o '^    \$ .* -o [a-z]*\.svg' $page | sed 's/.* //' >/tmp/gallery.$$
    grep -o '^!\[[^]]*\](gallery/[a-z]*\.svg)' $page | sed 's/.*gallery.//; s/)//' | diff /tmp/gallery.$$ - ||
        echo 'commands draw other pictures than the page shows'
    rm -f /tmp/gallery.$$
    for f in docs/gallery/*; do grep -qF "gallery/${f##*/}" $page || echo "$f is not on the page"; done)"
check 'what is said to be usable is' "$(
    said=$(COLUMNS=200 "${B:-build}/dpxplan" eval demo/8b-fsdp.json |
        sed -n "s/.*(\([0-9.]*\) GiB on the card, \([0-9.]*\) GiB usable).*/Of \1 GiB an H100 has \2 usable/p")
    [ -n "$said" ] && grep -qF "$said" $page || echo "the page does not say: $said")"
check 'pictures are small' "$(find docs/gallery -size +64k)"
check 'every command prints what the page shows and draws what is kept' "$(tools/pages.sh --check $page)"
finish
