#!/usr/bin/env bash
# Runs self-contained.yml for real: builds the image from dist/, sends and receives with released 4.x and 5.x clients
# through its published ports, stops it, and finds the data again after the next `up`. Installs docker.io and
# docker-compose from the distribution and starts a daemon of its own where they are missing; where no daemon can start,
# one line says so and the status is 0. INTEROP is the folder of the interoperability suite.
set -euo pipefail
cd "$(dirname "$0")"
interop=${INTEROP:-../../../shared/interop}
export NAMESRV_PUBLISHED=29876 BROKER_PUBLISHED=30911 GRPC_PUBLISHED=28081 HTTP_PUBLISHED=28080
export MEMORY=256m # C211
export COMPOSE_PROJECT_NAME=roquet-compose-test COMPOSE_DOCKER_CLI_BUILD=0 DOCKER_BUILDKIT=0
TARGETARCH=$(go env GOARCH)
export TARGETARCH
http=http://127.0.0.1:$HTTP_PUBLISHED

say() { printf 'compose: %s\n' "$*"; }
fail() {
	say "FAIL: $*"
	compose logs --tail 60 || true
	exit 1
}
compose() { docker-compose -f self-contained.yml -f "$work/roomy.yml" "$@"; }

if ! command -v dockerd >/dev/null || ! command -v docker-compose >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	patient="-qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3"
	# shellcheck disable=SC2086 # a list of words
	if ! { apt-get $patient update && apt-get $patient install -y --no-install-recommends docker.io docker-compose; } >/dev/null; then
		say "SKIP: no Docker daemon can start here: docker.io and docker-compose cannot be installed"
		exit 0
	fi
fi

work=$(mktemp -d /tmp/roquet-docker.XXXXXX)
# What is sent here is to be read again also on a machine whose own disk is 85 % full, where the oldest would go early.
cat >"$work/roomy.yml" <<-END
	services: {roquet: {environment: {ROQUET_DISK_MAX_USED_SPACE_RATIO: "95"}}}
END
daemon=
cleanup() {
	compose down -v --remove-orphans >/dev/null 2>&1 || true
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap cleanup EXIT

if ! docker info >/dev/null 2>&1; then
	export DOCKER_HOST=unix://$work/sock
	dockerd --data-root "$work/data" --exec-root "$work/exec" -p "$work/pid" -H "$DOCKER_HOST" >"$work/log" 2>&1 &
	daemon=$!
	for _ in $(seq 300); do
		docker info >/dev/null 2>&1 && break
		if ! kill -0 "$daemon" 2>/dev/null; then
			daemon=
			say "SKIP: no Docker daemon can start here: $(tail -n 1 "$work/log")"
			exit 0
		fi
		sleep 0.1
	done
	docker info >/dev/null || fail "the Docker daemon does not answer: $(tail -n 1 "$work/log")"
fi

docker-compose -f ../../docker-compose.yml config -q || fail "docker-compose.yml"
[ -x "../../dist/roquet_linux_$TARGETARCH" ] || fail "no dist/roquet_linux_$TARGETARCH: make dist"
compose build -q

up() {
	compose up -d >/dev/null 2>&1 || fail "up"
	for _ in $(seq 300); do
		id=$(compose ps -q roquet)
		[ "$(docker inspect -f '{{.State.Health.Status}}' "$id")" != healthy ] || return 0
		sleep 0.1
	done
	fail "not healthy after 30 s"
}

# load sends 100,000 messages of 1 KiB as fast as they go, and reads them all again.
load() {
	local from=$SECONDS n
	python3 -c 'for i in range(25000): print("{\"text\": \"%s\"}" % ("x" * 1024))' >"$work/lines"
	for _ in 1 2 3 4; do
		n=$(curl -fsS -H 'Content-Type: application/x-ndjson' --data-binary @"$work/lines" "$http/v1/topics/backlog/messages:batch" |
			grep -o '"messageId"' | wc -l)
		[ "$n" = 25000 ] || fail "$n of 25000 messages were taken"
	done
	n=$({ curl -s -N --max-time 60 "$http/v1/groups/backlog/topics/backlog/messages:stream?ack=AUTO" || true; } | head -n 100000 | wc -l)
	[ "$n" = 100000 ] || fail "$n of 100000 messages were read"
	say "100000 messages of 1 KiB sent and read within $MEMORY of memory, in $((SECONDS - from)) s"
}

# stop ends the container as `docker stop` does, and wants exit status 0 well within its grace.
stop() {
	local from=$SECONDS
	compose stop >/dev/null 2>&1
	local status
	status=$(docker inspect -f '{{.State.ExitCode}} {{.State.OOMKilled}}' "$id")
	[ "$status" = "0 false" ] || fail "stopped with status and OOM kill: $status"
	[ $((SECONDS - from)) -le 20 ] || fail "the stop took $((SECONDS - from)) s"
}

up
say "healthy; user $(docker inspect -f '{{.Config.User}}' "$id"), image of $(docker image inspect -f '{{.Size}}' roquet:self-contained) bytes"
kept=$(curl -fsS -d 'still here' "$http/v1/topics/kept/messages") || fail "publish over REST"
kept=$(sed -n 's/.*"messageId": *"\([0-9A-F]*\)".*/\1/p' <<<"$kept")

export NAMESRV=127.0.0.1:$NAMESRV_PUBLISHED BROKER=127.0.0.1:$BROKER_PUBLISHED GRPC=127.0.0.1:$GRPC_PUBLISHED
"$interop/run.sh" --keep --case '^(java-remoting-4.9/(send-sync|redelivery)|java-grpc/(send-sync|push-ack))$' \
	java-remoting-4.9 java-grpc || fail "clients outside the container"

load
stop
compose down >/dev/null 2>&1 # the container goes, the volume stays
up
curl -sS "$http/v1/messages/$kept?topic=kept" >"$work/kept"
grep -q -e 'still here' -e "$(printf 'still here' | base64)" "$work/kept" || fail "message $kept is gone: $(cat "$work/kept")"
stop
docker run --rm -v "${COMPOSE_PROJECT_NAME}_roquet-data:/var/lib/roquet" roquet:self-contained verify /var/lib/roquet ||
	fail "verify"
say "PASS: 4.x and 5.x clients through published ports, clean stops, the data survives"
