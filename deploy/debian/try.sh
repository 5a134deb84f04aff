#!/bin/bash
# try.sh FOLDER [SUITE] - installs the packages in FOLDER in a new, minimal Debian and tries what they bring.
#
# As root, with mmdebstrap (or its path in MMDEBSTRAP) and a mirror of the distribution; takes a minute or two, so no
# test runs it. SUITE is that of this machine by default. Mounts are made in a namespace of their own; the folder that
# holds the system is removed in the end.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${2:-}" = --inside ]; then
	# --- in the new system ---------------------------------------------------------------------------
	export DEBIAN_FRONTEND=noninteractive
	say() { printf '== %s\n' "$*" >&2; }
	answer() { # PORT PATH: the first line of the answer
		exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3 && head -n 1 <&3
	}
	soon() { # PORT PATH: until it answers 200
		for _ in $(seq 300); do
			answer "$1" "$2" 2>/dev/null | grep ' 200 ' && return 0
			sleep 0.1
		done
		say "nothing on port $1"
		return 1
	}

	say "install"
	apt-get update >/dev/null
	apt-get install -y --no-install-recommends /packages/*.deb >/install.log 2>&1 || { cat /install.log && exit 1; }
	id kvway kvtier
	[ "$(stat -c '%a %U %G' /etc/kvway/kvway.yaml)" = '640 root kvway' ]
	[ "$(stat -c '%a %U %G' /etc/kvtierd/kvtierd.yaml)" = '640 root kvtier' ]

	say "units and pages"
	systemd-analyze verify --man=no kvway.service kvtierd.service
	for page in kvway kvway-explain kvway-key kvway-render kvway-trace kvway-workers kvtier kvtierd; do gzip -dc /usr/share/man/man1/$page.1.gz | head -n 1; done

	say "kvway, as its user, with the file that came with it"
	runuser -u kvway -- kvway check -c /etc/kvway/kvway.yaml
	setpriv --reuid=kvway --regid=kvway --init-groups kvway -c /etc/kvway/kvway.yaml &
	soon 9090 /health
	kill -TERM $!
	wait $!

	say "kvtierd, as its user, with the file that came with it"
	runuser -u kvtier -- kvtierd check /etc/kvtierd/kvtierd.yaml >/dev/null
	setpriv --reuid=kvtier --regid=kvtier --init-groups kvtierd -c /etc/kvtierd/kvtierd.yaml &
	soon 9201 /health
	kill -TERM $!
	wait $!

	say "a program over libkvtier"
	# shellcheck disable=SC2046 # flags are words
	gcc -Wall -Wextra -Werror -o /tmp/try /try.c $(pkg-config --cflags --libs kvtier)
	/tmp/try

	say "the wheel"
	PYTHONPATH=$(echo /packages/kvtier-*.whl) python3 -c 'from kvtier.library import Cache; Cache(["l1: {capacity: 64MiB}"]).close()'

	say "remove and purge"
	apt-get purge -y kvway kvtier libkvtier1 libkvtier-dev >/dev/null
	for left in /etc/kvway /etc/kvtierd /usr/bin/kvway /usr/include/kvtier /usr/share/doc/kvway; do
		[ ! -e $left ] || { say "$left is left" && exit 1; }
	done
	say "all is well"
	exit 0
fi

# --- outside --------------------------------------------------------------------------------------
packages=${1:?usage: try.sh FOLDER [SUITE]}
suite=${2:-$(sed -n s/^VERSION_CODENAME=//p /etc/os-release)}
system=$(mktemp -d)
trap 'rm -rf --one-file-system "$system"' EXIT
"${MMDEBSTRAP:-mmdebstrap}" --mode=root --variant=apt --include=gcc,libc6-dev,pkgconf,python3-minimal,libpython3-stdlib \
	"$suite" "$system" >&2
mkdir "$system/packages"
cp "$packages"/*.deb "$packages"/*.whl "$system/packages/"
cp "$here/try.sh" "$here/try.c" "$system/"
# shellcheck disable=SC2016 # the inner shell's words
unshare --mount --pid --fork --propagation private bash -euc '
	mount -t proc proc "$0/proc"
	mkdir -p "$0/dev/shm"
	mount -t tmpfs -o size=512m tmpfs "$0/dev/shm"
	cp --dereference /etc/resolv.conf "$0/etc/resolv.conf"
	exec chroot "$0" /try.sh - --inside' "$system"
