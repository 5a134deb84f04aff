#!/bin/sh
# install.sh PACKAGE - the program of a package in /packages and the libraries that it needs, without the service.
#
# A container has no systemd: the package is unpacked, and of what it depends on only the libraries are installed.
set -eu
package=$(echo /packages/"$1"_*.deb)
libraries=$(dpkg-deb --field "$package" Depends | tr ',' '\n' | sed 's/(.*//; s/|.*//; s/ //g' | grep -v '^systemd')
apt-get update
# shellcheck disable=SC2086 # a list of words
apt-get install -y --no-install-recommends ca-certificates $libraries
dpkg-deb --extract "$package" /packages/unpacked
cp -a /packages/unpacked/usr/bin/. /usr/bin/
cp -a /packages/unpacked/etc/. /etc/
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
