#!/usr/bin/env bash
# The corners (helpers/corners.py, a function for each): odd and long names, deep trees, 100,000 files in a
# directory, hard links, sparse files, preallocation, maps, renames of every kind, attributes, ACLs, two
# processes. Afterwards everything left is the same after a remount, and can be removed.
. "$(dirname "$0")/../lib.sh"
begin "$@"
volume_new 4G
# Names may be no valid text: everything is compared as bytes.
attributes() { (cd "$MNT" && find . -print0 | sort -z | xargs -0 stat --printf '%n|%F|%a|%h|%s|%Y|%u\0'); }
contents() { (cd "$MNT" && find . -type f -size -100M -print0 | sort -z | xargs -0 sha256sum -z | sha256sum); }

check_lines "$PYTHON" "$HELPERS/corners.py" "$MNT"
attributes >"$WORK/before"
contents >"$WORK/contents"
volume_cycle
attributes >"$WORK/after"
check 'names, kinds, modes, links, sizes and times are the same after a remount' cmp "$WORK/before" "$WORK/after"
check 'contents are the same after a remount' [ "$(contents)" = "$(cat "$WORK/contents")" ]
check 'all of it can be removed' find "$MNT" -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {} +
volume_end
finish
