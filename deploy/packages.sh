#!/bin/sh
# packages.sh GROUP... - installs the distribution's packages that are missing, and only those.
#
# Groups: build (compile kvway), test (tests/run.sh), package (deploy/package.sh), demo (deploy/quickstart.sh),
# peers (what bench/run.sh measures against). `packages.sh --list GROUP...` prints the names.
#
# Debian 12 and Ubuntu 24.04. Nothing is asked of the network when everything is there. Where a
# package has another name in another release, the names stand in one word, "a|b": the first that
# is installed counts, else the first that the distribution has. "?a" is left out where the distribution has none.
set -eu

packages_of() {
	case $1 in
	build)
		echo gcc libc6-dev meson ninja-build 'pkgconf|pkg-config' \
			libevent-dev libssl-dev libjansson-dev libxxhash-dev libyaml-dev libzmq3-dev libc-ares-dev \
			liburing-dev libmsgpack-dev zlib1g-dev \
			'libcurl4-openssl-dev|libcurl4-gnutls-dev' 'libllhttp-dev|node-llhttp'
		;;
	test)
		echo check g++ clang 'libclang-rt-dev|libclang-rt-18-dev|libclang-rt-14-dev' llvm \
			python3 python3-pytest python3-venv python3-yaml shellcheck git util-linux \
			redis-server redis-tools openssl prometheus dpkg-dev patchelf '?kubectl|kubernetes-client' \
			'?chromium-headless-shell|chromium' fonts-dejavu-core
		;;
	demo) echo curl python3 ;;
	package) echo dpkg-dev binutils patchelf python3 ;;
	peers) echo haproxy '?libdd-opentracing0' nginx fio redis-server redis-tools python3-venv util-linux ;;
	*)
		echo "packages.sh: unknown group '$1'; groups are build, test, package, demo and peers" >&2
		return 1
		;;
	esac
}

installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Is one of the names in "a|b" installed?
any_installed() {
	for name in $(echo "$1" | tr '?|' '  '); do
		if installed "$name"; then return 0; fi
	done
	return 1
}

# The first of the names in "a|b" that apt can install; the first at all if it knows none.
candidate() {
	for name in $(echo "$1" | tr '?|' '  '); do
		if apt-cache policy "$name" 2>/dev/null | grep -q 'Candidate: [^(]'; then
			echo "$name"
			return 0
		fi
	done
	return 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

missing_names() {
	set -f # "?" is no pattern
	for word in $wanted; do
		any_installed "$word" || candidate "$word" || case $word in
		\?*) ;;
		*) echo "${word%%|*}" ;;
		esac
	done
}

case ${1:-} in
-h | --help)
	sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
	exit 0
	;;
esac
list_only=no
if [ "${1:-}" = --list ]; then
	list_only=yes
	shift
fi
[ $# -gt 0 ] || set -- build
wanted=
for group in "$@"; do
	names=$(packages_of "$group")
	wanted="$wanted $names"
done
if [ $list_only = yes ]; then
	echo "$wanted" | tr -d '?' | tr ' ' '\n' | sed '/^$/d' | sort -u
	exit 0
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
	echo "packages.sh: this is neither Debian nor Ubuntu; these packages' counterparts are needed:" >&2
	echo "$wanted" >&2
	exit 0 # the build says what it lacks
fi

missing=$(missing_names | sort -u | tr '\n' ' ')
[ -n "$missing" ] || exit 0

echo "installing: $missing" >&2
if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
	echo "packages.sh: not root, and there is no sudo. Run this as root, then try again:" >&2
	echo "    apt-get update && apt-get install $missing" >&2
	exit 1
fi
apt() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}
# Package lists may be absent or too old to name every package; names may differ after the update.
apt update || echo "packages.sh: apt-get update failed, trying with the lists at hand" >&2
missing=$(missing_names | sort -u | tr '\n' ' ')
# Tests start servers of their own; the packages' services neither start now nor with the machine.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'as_root rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
	as_root chmod 755 $policy
fi
status=0
# shellcheck disable=SC2086 # a list of words
apt install -y --no-install-recommends $missing >/dev/null || status=$?
if command -v systemctl >/dev/null; then
	for name in $missing; do
		case $name in
		redis-server | prometheus | haproxy | nginx) as_root systemctl --quiet disable "$name" 2>/dev/null || true ;;
		esac
	done
fi
if [ $status != 0 ]; then
	echo "packages.sh: could not install: $missing" >&2
	echo "Install these packages by hand, then run this again." >&2
	exit 1
fi
