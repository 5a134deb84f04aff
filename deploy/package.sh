#!/bin/bash
# package.sh - Debian packages of kvway and kvtier, wheels of the router and of vLLM's connector.
#
# kvway, kvtier (commands and kvtierd), libkvtier1 and libkvtier-dev, for the release on which it runs: Debian 12 or
# Ubuntu 24.04. Built with dpkg-deb, no debhelper; what they depend on is computed (dpkg-shlibdeps). Manual pages and
# completions come from the programs' own --help (manual.py).
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

usage() {
	cat <<'END'
usage: deploy/package.sh [--build DIR] [OUT]

Writes into OUT (default: build-package/out)
  *.deb         the packages kvway, kvtier, libkvtier1 and libkvtier-dev
  kvway-*.whl   the router with its libraries; pip install it where there is Python and the glibc in its name, or a newer
  kvtier-*.whl  the connector of vLLM, for libkvtier1

  --build DIR   take the programs of this finished build; otherwise a release is built in build-package
  --help        this text

KVW_REVISION (default 1) is what follows the version in their names, KVW_MAINTAINER their maintainer,
KVW_COMPRESSION (default xz) what dpkg-deb compresses them with.
END
}

build=
while [ $# -gt 0 ]; do
	case $1 in
	--build)
		build=${2:?--build needs a folder}
		shift
		;;
	-h | --help)
		usage
		exit 0
		;;
	-*)
		echo "package.sh: unknown option '$1'" >&2
		usage >&2
		exit 2
		;;
	*) break ;;
	esac
	shift
done
out=${1:-build-package/out}
mkdir -p "$out"
out=$(cd "$out" && pwd)

if [ -z "$build" ]; then
	deploy/packages.sh build package
	build=$root/build-package
	[ -f "$build/build.ninja" ] ||
		meson setup "$build" --prefix=/usr --buildtype=release -Dtests=false -Dbench=false >&2
	ninja -C "$build" >&2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
version=$(sed -n "s/^\tversion: '\(.*\)',/\1/p" meson.build)-${KVW_REVISION:-1}
maintainer=${KVW_MAINTAINER:-kvway <root@localhost>}
arch=$(dpkg --print-architecture)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)

# --- everything as it will lie under /usr ---------------------------------------------------------

DESTDIR=$work/stage meson install -C "$build" --no-rebuild >/dev/null
prefix=$(meson introspect --buildoptions "$build" |
	python3 -c 'import json,sys; print({o["name"]: o["value"] for o in json.load(sys.stdin)}["prefix"])')
usr=$work/stage$prefix
find "$usr" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec strip --strip-unneeded {} +
sed -i 's|^prefix=.*|prefix=/usr|' "$usr/lib/$triplet/pkgconfig/kvtier.pc"
deploy/manual.py "$work/manual" "$usr/bin/kvway" "$usr/bin/kvtier" "$usr/bin/kvtierd"

package= # the one that is being filled
put() { # MODE TARGET FILE...: into the package
	local mode=$1 target=$work/$package/$2
	shift 2
	mkdir -p "$target"
	install -m "$mode" "$@" "$target"
}
put_as() { # MODE TARGET FILE
	install -D -m "$1" "$3" "$work/$package/$2"
}
compressed() { # TARGET FILE
	mkdir -p "$work/$package/$(dirname "$1")"
	gzip -9n <"$2" >"$work/$package/$1.gz"
}

# Pages and completions of a program.
put_manual() { # PROGRAM
	local page
	for page in "$work"/manual/man/"$1".1 "$work"/manual/man/"$1"-*.1; do
		[ ! -f "$page" ] || compressed "usr/share/man/man1/$(basename "$page")" "$page"
	done
	put 644 usr/share/bash-completion/completions "$work/manual/bash/$1"
	put 644 usr/share/zsh/vendor-completions "$work/manual/zsh/_$1"
	put 644 usr/share/fish/vendor_completions.d "$work/manual/fish/$1.fish"
}

# Unit, user, configuration file and what is done when it is installed and removed.
put_service() { # UNIT USER CONFIG STATE
	local unit=$1 user=$2 config=$3 state=$4 script
	mkdir -p "$work/$package/usr/lib/systemd/system" "$work/$package/DEBIAN"
	sed -e '/^#   /d' -e "s|/usr/local/bin|/usr/bin|" deploy/systemd/"$unit".service \
		>"$work/$package/usr/lib/systemd/system/$unit.service"
	put_as 644 usr/lib/sysusers.d/"$user".conf deploy/debian/"$user".sysusers
	echo "$config" >>"$work/$package/DEBIAN/conffiles"
	for script in postinst prerm postrm; do
		sed -e "s|@UNIT@|$unit|g" -e "s|@USER@|$user|g" -e "s|@CONFIG@|$config|g" -e "s|@STATE@|$state|g" \
			deploy/debian/$script >"$work/$package/DEBIAN/$script"
		chmod 755 "$work/$package/DEBIAN/$script"
	done
}

# --- the packages ---------------------------------------------------------------------------------

package=kvway
put 755 usr/bin "$usr/bin/kvway"
put_manual kvway
put_as 644 etc/kvway/kvway.yaml config/examples/minimal.yaml
put_service kvway kvway /etc/kvway/kvway.yaml /var/log/kvway
put 644 usr/share/doc/kvway config/REFERENCE.md src/router/admin/METRICS.md
put 644 usr/share/doc/kvway/examples config/examples/*.yaml
put 644 usr/share/doc/kvway/examples/prometheus deploy/prometheus/rules.yaml deploy/prometheus/prometheus.yaml
put 644 usr/share/doc/kvway/examples/grafana deploy/grafana/*.json

package=kvtier
put 755 usr/bin "$usr/bin/kvtier" "$usr/bin/kvtierd"
put_manual kvtier
put_manual kvtierd
put_as 644 etc/kvtierd/kvtierd.yaml deploy/debian/kvtierd.yaml
put_service kvtierd kvtier /etc/kvtierd/kvtierd.yaml /var/lib/kvtierd
put 644 usr/share/doc/kvtier cache/options/REFERENCE.md cache/python/LMCACHE.md
put_as 644 usr/share/doc/kvtier/kvtierd-REFERENCE.md cache/daemon/REFERENCE.md
put_as 644 usr/share/doc/kvtier/kvtierd-METRICS.md cache/daemon/METRICS.md
put 644 usr/share/doc/kvtier/examples cache/options/examples/*.yaml
put 644 usr/share/doc/kvtier/examples/kvtierd cache/daemon/examples/*.yaml

package=libkvtier1
mkdir -p "$work/$package/usr/lib/$triplet"
for library in "$usr/lib/$triplet"/libkvtier*.so.*; do
	cp -P "$library" "$work/$package/usr/lib/$triplet/"
done
# Opened by name where there is a GPU.
[ ! -e "$usr/lib/$triplet/libkvtier_cuda.so" ] || cp -P "$usr/lib/$triplet/libkvtier_cuda.so" "$work/$package/usr/lib/$triplet/"
mkdir -p "$work/$package/DEBIAN"
printf 'libkvtier 1 libkvtier1 (>= %s)\nlibkvtier_cuda 1 libkvtier1 (>= %s)\n' "$version" "$version" \
	>"$work/$package/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$work/$package/DEBIAN/triggers"

package=libkvtier-dev
put 644 usr/include/kvtier "$usr"/include/kvtier/*.h
put 644 usr/lib/"$triplet"/pkgconfig "$usr/lib/$triplet/pkgconfig/kvtier.pc"
cp -P "$usr/lib/$triplet/libkvtier.so" "$work/$package/usr/lib/$triplet/"

# Libraries that the programs of a package load, as a list of packages with versions.
libraries_of() {
	local found
	mapfile -t found < <(find "$work/$1/usr/bin" "$work/$1/usr/lib" -type f \( -perm -100 -o -name '*.so.*' \) 2>/dev/null)
	[ ${#found[@]} -gt 0 ] || return 0
	mkdir -p "$work/source/debian"
	printf 'Source: kvway\n\nPackage: %s\nArchitecture: any\n' "$1" >"$work/source/debian/control"
	(cd "$work/source" && dpkg-shlibdeps -O --warnings=1 "${found[@]}") | sed -n 's/^shlibs:Depends=//p'
}

for package in kvway kvtier libkvtier1 libkvtier-dev; do
	mkdir -p "$work/$package/DEBIAN"
	put 644 usr/share/doc/$package deploy/debian/copyright
	compressed usr/share/doc/$package/changelog CHANGELOG.md
	printf 'kvway (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$version" "$maintainer" \
		"$(date -Rud "@$SOURCE_DATE_EPOCH")" >"$work/changelog"
	compressed usr/share/doc/$package/changelog.Debian "$work/changelog"
	# The paragraph of this package, its Depends with the libraries in front.
	libraries=$(libraries_of $package)
	{
		echo "Package: $package"
		printf 'Source: kvway\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nPriority: optional\n' "$version" "$arch" "$maintainer"
		echo "Installed-Size: $(du -sk --exclude=DEBIAN "$work/$package" | cut -f1)"
		sed -n "/^Package: $package\$/,/^\$/p" deploy/debian/control |
			awk -v libraries="$libraries" -v version="$version" '
				/^(Package:|$)/ { next }
				{ gsub(/@VERSION@/, version) }
				/^Depends: / { $0 = "Depends: " (libraries != "" ? libraries ", " : "") substr($0, 10); had = 1 }
				/^Description:/ && !had && libraries != "" { print "Depends: " libraries }
				{ print }'
	} >"$work/$package/DEBIAN/control"
	chmod -R u=rwX,go=rX "$work/$package"
	(cd "$work/$package" && find usr etc -type f -exec md5sum {} + 2>/dev/null | grep -v ' etc/' >DEBIAN/md5sums) || true
	dpkg-deb --root-owner-group -Z"${KVW_COMPRESSION:-xz}" --build "$work/$package" "$out/${package}_${version}_$arch.deb" >&2
done

# --- the wheels -----------------------------------------------------------------------------------

cd "$out"
"$root/deploy/wheel.py" . >&2
if command -v patchelf >/dev/null; then
	"$root/deploy/wheel_router.py" "$usr/bin/kvway" . >&2
else
	echo "package.sh: no wheel of the router: patchelf is not here (deploy/packages.sh package installs it)" >&2
fi
ls "$out"
