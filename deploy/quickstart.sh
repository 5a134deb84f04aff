#!/bin/bash
# quickstart.sh - from a bare machine to a running router, and what prefix-aware routing gains.
#
# Installs what is missing, builds a release, starts four simulated workers and kvway, sends the
# same conversations through `roundrobin` and through `prefixaware`, prints one table and leaves
# the router running. Every strategy meets fresh workers with empty caches and the same questions
# at the same moments. Debian 12 and Ubuntu 24.04; `--help` says more.
#
# Whatever is started is on the list `pids` until it is handed over to the user, and the trap on
# EXIT ends what is on the list: no way out of this script leaves a process behind. Should the
# script itself be killed by SIGKILL, the kernel ends what the comparison had started (pdeathsig).
set -u
build=${QUICKSTART_BUILD:+$(readlink -m "$QUICKSTART_BUILD")}
cd "$(dirname "$0")/.." || exit 1
root=$(pwd -P)
build=${build:-$root/build-release}
state=$build/quickstart
kvway=$build/src/router/kvway
kvsim=$build/bench/sim/kvsim
kvbench=$build/bench/load/kvbench

# The simulated workers: what they pretend to be and to hold. `kvsim --list-profiles` explains it.
workers=4
profile=llama-8b-h100
# The conversations: 64 users of 8 assistants, each with a system prompt of its own that its users
# share, ask 8 questions that bring some text along. A prompt has 3,500 tokens in the first round
# and 15,000 in the last; all conversations together fill about two of the four caches.
chat=(--users 64 --rounds 8 --system-prompts 8 --system-tokens 2000 --question-tokens 1500
	--answer-tokens 150 --qps 10 --seed 42)
slo=(--slo-ttft 0.5 --slo-prefill 1e9 --slo-tpot 0.03)
# Real workers may be in use: send only 24 requests per strategy, one a second. We cannot empty their
# caches, so each strategy gets its own texts (another seed).
polite=(--users 6 --rounds 4 --system-prompts 2 --system-tokens 600 --question-tokens 150
	--answer-tokens 32 --qps 1 --arrivals fixed --concurrency 4)

usage() {
	cat <<'END'
usage: deploy/quickstart.sh [--once] [--worker URL]... [--port N] [--admin-port N] [--speed X]
       deploy/quickstart.sh --stop

Installs what is missing, builds kvway, starts four simulated workers, sends the same
conversations through `roundrobin` and `prefixaware`, prints what routing gained and leaves
the router running. About one minute after the build.

  --once           stop everything at the end, exit 0
  --stop           stop the router (and its simulated workers) that an earlier run left
  --worker URL     a real vLLM server, http://HOST:PORT, instead of the simulated ones; once
                   for each. The load is small then: 24 short requests per strategy. The model
                   is asked from /v1/models. OPENAI_API_KEY, if set, is used.
                   For cached tokens in the table start vLLM with
                   --enable-prompt-tokens-details.
  --port N         port for clients (default: 8080, or the next that is free)
  --admin-port N   port for metrics and health (default: 9090, or the next that is free)
  --speed X        simulated seconds per second during the comparison (default 2); far above,
                   the delays of this machine itself get into the figures. The workers that
                   stay for you to try run at 1.
  --help           this text

QUICKSTART_BUILD=DIR builds in DIR (default build-release in the checkout). Results, logs and
the configuration of the running router are in DIR/quickstart.
END
}

# --- output -------------------------------------------------------------------------------------

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
	bold=$'\033[1m' dim=$'\033[2m' red=$'\033[31m' plain=$'\033[0m' colour=yes
else
	bold='' dim='' red='' plain='' colour=no
fi

say() { printf '%s\n' "${bold}$*${plain}"; }
note() { printf '%s\n' "  $*"; }
fail() {
	printf '%s\n' "${red}quickstart: $1${plain}" >&2
	shift
	[ $# -eq 0 ] || printf '  %s\n' "$@" >&2
	exit 1
}
tail_of() { tail -n 15 "$1" | sed 's/^/    /' >&2; }

# --- processes ----------------------------------------------------------------------------------

pids=()    # started by this run and to be ended by it
started='' # the last one of them

end_all() {
	local pid
	[ ${#pids[@]} -gt 0 ] || return 0
	kill "${pids[@]}" 2>/dev/null
	for pid in "${pids[@]}"; do
		for _ in {1..50}; do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
		kill -KILL "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	pids=()
}

tidy() {
	end_all
	[ -z "${work:-}" ] || rm -rf "$work"
}
trap tidy EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Starts a program with its output in LOG. `tied` dies with this script, `free` may outlive it and
# its terminal. Neither holds the lock.
start() { # tied|free LOG COMMAND...
	local how=(setsid) log=$2
	if [ "$1" = tied ]; then
		how=(setpriv --pdeathsig KILL)
	fi
	shift 2
	rm -f "$log" # callers wait for a line in it and must not find the previous program's
	"${how[@]}" "$@" >"$log" 2>&1 </dev/null 9>&- &
	started=$!
	pids+=("$started")
}

# Waits up to 10 s for a command to succeed, while the process started last lives.
wait_until() { # COMMAND...
	for _ in {1..200}; do
		"$@" && return 0
		kill -0 "$started" 2>/dev/null || return 1
		sleep 0.05
	done
	return 1
}

# --- arguments ----------------------------------------------------------------------------------

once=no stop=no speed=2 port='' admin_port=''
urls=()

is_port() { [[ $1 =~ ^[0-9]{1,5}$ ]] && [ "$1" -ge 1 ] && [ "$1" -le 65535 ]; }

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--worker | --port | --admin-port | --speed)
			[ $# -ge 2 ] || fail "$1 needs a value; --help explains it"
			;;
		esac
		case $1 in
		--once) once=yes ;;
		--stop) stop=yes ;;
		--worker)
			[[ $2 =~ ^https?://[^/[:space:]]+ ]] ||
				fail "--worker is '$2', expected http://HOST:PORT of a vLLM server"
			urls+=("${2%/}")
			shift
			;;
		--port | --admin-port)
			is_port "$2" || fail "$1 is '$2', expected a port from 1 to 65535"
			if [ "$1" = --port ]; then port=$2; else admin_port=$2; fi
			shift
			;;
		--speed)
			[[ $2 =~ ^[0-9]+(\.[0-9]+)?$ && ! $2 =~ ^[0.]+$ ]] ||
				fail "--speed is '$2', expected a number above 0, for example 1"
			speed=$2
			shift
			;;
		-h | --help)
			usage
			exit 0
			;;
		*) fail "unknown option '$1'; --help lists them" ;;
		esac
		shift
	done
	[ -z "$port" ] || [ "$port" != "$admin_port" ] ||
		fail "--port and --admin-port are both $port, expected two different ports"
}

# --- what an earlier run left -------------------------------------------------------------------

# Does the process run this program? The system may have given its id to another process by now.
runs() { # PID PROGRAM
	local program
	program=$(readlink "/proc/$1/exe" 2>/dev/null) || return 1
	[ "${program% (deleted)}" = "$(readlink -m "$2")" ] # deleted: rebuilt since
}

# Ends a router and its workers that stayed; their numbers are in the file `running`.
stop_running() {
	local name pid url
	[ -f "$state/running" ] || return 1
	while read -r name pid url; do
		runs "$pid" "$build/$name" || continue
		kill "$pid" 2>/dev/null
		for _ in {1..50}; do
			runs "$pid" "$build/$name" || break
			sleep 0.1
		done
		kill -KILL "$pid" 2>/dev/null # answers were still under way after five seconds
		note "stopped $(basename "$name"), pid $pid${url:+, $url}"
	done <"$state/running"
	rm -f "$state/running"
}

# --- build --------------------------------------------------------------------------------------

build_all() {
	local began=$SECONDS log=$state/build.log
	mkdir -p "$state" 2>/dev/null && [ -w "$state" ] ||
		fail "cannot write to $state" "QUICKSTART_BUILD=DIR deploy/quickstart.sh builds elsewhere."
	deploy/packages.sh build demo || exit 1
	for tool in cc meson ninja curl python3; do
		command -v "$tool" >/dev/null ||
			fail "'$tool' is not installed" "The list of what is needed: deploy/packages.sh --list build demo"
	done
	if [ ! -f "$build/build.ninja" ]; then
		say "building kvway (once; about a minute on two idle cores)"
		note "${log#"$root"/} shows how far it is"
		if ! meson setup "$build" "$root" --buildtype=release -Dtests=false >"$log" 2>&1; then
			tail_of "$log"
			fail "the build could not be configured" "The whole log: $log"
		fi
	fi
	if ! ninja -C "$build" src/router/kvway bench/sim/kvsim bench/load/kvbench >"$log" 2>&1; then
		tail_of "$log"
		fail "the build failed" "The whole log: $log"
	fi
	say "kvway is built $dim($(basename "$build"), $((SECONDS - began)) s)"
}

# --- workers and router -------------------------------------------------------------------------

# Starts the simulated workers; sets `urls`. SPEED 1 is the clock's.
start_sim() { # tied|free SPEED
	local ports=$work/ports
	rm -f "$ports"
	start "$1" "$state/kvsim.log" "$kvsim" --workers $workers --profile $profile --speed "$2" \
		--ports-file "$ports"
	wait_until test -s "$ports" || {
		tail_of "$state/kvsim.log"
		fail "the simulated workers did not start"
	}
	mapfile -t urls < <(awk '{print $NF}' "$ports")
}

write_config() { # STRATEGY LISTEN ADMIN
	local url
	(
		umask 077 # it may hold a key
		{
			echo "listen: $2"
			echo "admin:"
			echo "  listen: $3"
			echo "drain:"
			echo "  settle: 0s" # no load balancer is in front of it
			echo "workers:"
			for url in "${urls[@]}"; do
				echo "  - url: $url"
				[ $real = no ] || [ -z "${OPENAI_API_KEY:-}" ] ||
					echo "    api_key: '${OPENAI_API_KEY//\'/\'\'}'"
			done
			echo "routing:"
			echo "  strategy: $1"
		} >"$state/kvway.yaml"
	)
}

ready() { curl -sf -o /dev/null --max-time 2 "http://$address/ready"; }
listens() {
	local line
	line=$(grep -os 'listens on [^ ]* admin=[^ ]*' "$state/kvway.log") || return 1
	address=$(cut -d' ' -f3 <<<"$line")
	admin=${line##*admin=}
}

# Starts kvway; sets `address` and `admin`. Port 0 is one that the kernel chooses.
start_kvway() { # tied|free STRATEGY PORT ADMIN_PORT; 1: a port is taken, `taken` says which
	taken=''
	write_config "$2" "127.0.0.1:$3" "127.0.0.1:$4"
	start "$1" "$state/kvway.log" "$kvway" -c "$state/kvway.yaml"
	if ! wait_until listens; then
		taken=$(grep -os '127.0.0.1:[0-9]*: Address already in use' "$state/kvway.log" |
			cut -d: -f2)
		[ -z "$taken" ] || return 1
		tail_of "$state/kvway.log"
		fail "kvway did not start"
	fi
	wait_until ready && return 0
	tail_of "$state/kvway.log"
	fail "kvway found no usable worker" "workers: ${urls[*]}"
}

# A listening socket answers at once; kvway itself would share a port with another kvway.
port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() { # FROM; prints the first free one
	local p
	for ((p = $1; p < $1 + 100; p++)); do
		port_taken "$p" || {
			echo "$p"
			return 0
		}
	done
	return 1
}

check_real_workers() {
	local url key=()
	[ -z "${OPENAI_API_KEY:-}" ] || key=(-H "Authorization: Bearer $OPENAI_API_KEY")
	for url in "${urls[@]}"; do
		curl -sf -o /dev/null --max-time 10 "${key[@]}" "$url/v1/models" ||
			fail "$url/v1/models does not answer (curl: $?)" \
				"Is that a vLLM server, and can this machine reach it?"
	done
}

# --- the comparison -----------------------------------------------------------------------------

# One strategy on fresh workers; the result is in $state/STRATEGY.json.
measure() { # STRATEGY
	local result=$state/$1.json load=("${chat[@]}" "${slo[@]}" --speed "$speed")
	rm -f "$result"
	if [ $real = yes ]; then
		load=("${polite[@]}" --seed "$((${#1} * 1000 + RANDOM))")
	else
		start_sim tied "$speed"
	fi
	start_kvway tied "$1" 0 0 || fail "kvway did not start: port $taken is taken"
	# In the background, so that a signal is acted upon at once and not when the run is over.
	setpriv --pdeathsig KILL "$kvbench" chat --url "http://$address" --label "$1" \
		--json "$result" "${load[@]}" >"$work/table" 9>&- &
	pids+=($!)
	wait $! || {
		sed 's/^/    /' "$work/table" >&2
		tail_of "$state/kvway.log"
		fail "the run with $1 did not end well"
	}
	end_all
}

compare() {
	say "measuring, the same conversations twice"
	for strategy in roundrobin prefixaware; do
		note "$strategy ..."
		measure "$strategy"
	done
	echo
	deploy/quickstart_table.py $colour "$real" "$("$kvsim" --list-profiles)" \
		"$state/roundrobin.json" "$state/prefixaware.json" || exit 1
}

# --- what stays ---------------------------------------------------------------------------------

# kvway on the wanted port, or on the next free one where none was asked for.
start_to_stay() {
	local main=$port control=$admin_port
	[ $real = yes ] || start_sim free 1
	for _ in {1..20}; do
		[ -n "$port" ] || main=$(free_port 8080) || fail "no free port from 8080 to 8179"
		[ -n "$admin_port" ] || control=$(free_port 9090) || fail "no free port from 9090 to 9189"
		start_kvway free prefixaware "$main" "$control" && return 0
		case $taken in "$port" | "$admin_port") break ;; esac
	done
	fail "port $taken is taken by another program"
}

leave_running() {
	local model pid=
	start_to_stay
	model=$(curl -sf "http://$address/v1/models" |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])') ||
		fail "no model at http://$address/v1/models"
	: >"$state/running"
	pid=$started
	echo "src/router/kvway $pid http://$address" >>"$state/running"
	[ $real = yes ] || echo "bench/sim/kvsim ${pids[0]}" >>"$state/running"
	pids=() # theirs now
	say "kvway stays up, prefixaware over ${#urls[@]} $([ $real = yes ] || echo 'simulated ')workers"
	note "clients  http://$address    pid $pid"
	note "admin    http://$admin    /health /ready /metrics"
	note "files    ${state#"$root"/}: kvway.yaml, kvway.log, *.json"
	echo
	say "try"
	cat <<-END
		  curl http://$address/v1/chat/completions -H 'Content-Type: application/json' \\
		       -d '{"model": "$model", "messages": [{"role": "user", "content": "Hello"}]}'
		  ${kvway#"$root"/} trace --admin $admin --last 1      # where it went, and why
		  echo '{"model": "$model", "prompt": "Hello"}' |
		       ${kvway#"$root"/} explain --admin $admin    # where would this go, and why?
		  curl -s http://$admin/metrics | grep '^kvway_decisions'
		  deploy/quickstart.sh --stop
	END
}

# --- main ---------------------------------------------------------------------------------------

parse "$@"
if [ $stop = yes ]; then
	stop_running || note "nothing to stop: no router of an earlier run is left"
	exit 0
fi
real=no
[ ${#urls[@]} -eq 0 ] || real=yes
build_all
exec 9>"$state/lock"
flock -n 9 || fail "another quickstart.sh is at work in this checkout"
work=$state/work
rm -rf "$work"
mkdir "$work" || exit 1
[ $real = no ] || check_real_workers
if [ $once = no ]; then
	stop_running || true
	for p in $port $admin_port; do
		! port_taken "$p" || fail "port $p is taken by another program" "Choose another one, or none."
	done
fi
compare
[ $once = yes ] || leave_running
