#!/usr/bin/env bash
# Tries every command of the official mqadmin, signed, on a roquet of its own that asks for it, and compares what came out with the list in
# docs/compat.md; -rewrite writes the list. Needs the mqadmin client of ../shared/interop, built by its run.sh.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
lib=${INTEROP_BUILD:-${XDG_CACHE_HOME:-$HOME/.cache}/roquet-interop}/mqadmin/lib
offset=3000
work=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
mkdir -p "$work/out" "$work/conf"
printf 'accessKey: root\nsecretKey: %s\n' "$secret" >"$work/conf/tools.yml"
ROQUET_INIT_AUTHENTICATION_USER="{\"username\":\"root\",\"password\":\"$secret\"}" "$root/bin/roquet" serve --data "$work/data" --port-offset "$offset" >"$work/roquet.log" 2>&1 &
server=$!
for _ in $(seq 100); do
	(exec 3<>"/dev/tcp/127.0.0.1/$((9876 + offset))") 2>/dev/null && break
	sleep 0.1
done
failed=0
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.home="$work" -Drocketmq.home.dir="$work" -Drocketmq.client.logRoot="$work" -cp "$lib/*" MqadminCommands.java \
	commands.txt "127.0.0.1:$((9876 + offset))" "127.0.0.1:$((10911 + offset))" "$work/out" >"$work/list" || failed=1
page="$root/docs/compat.md"
sed '/^## mqadmin$/,$d' "$page" >"$work/page"
{
	printf '## mqadmin\n\nEvery command of mqadmin 5.5.0, tried by `e2e/mqadmin/run.sh`, which writes this list and fails when it is not true.\n\n'
	cat "$work/list"
} >>"$work/page"
grep -c 'works' "$work/list" | sed 's/$/ commands of mqadmin work/'
if [ "${1:-}" = -rewrite ]; then
	cp "$work/page" "$page"
elif ! diff -u "$page" "$work/page"; then
	failed=1
fi
exit "$failed"
