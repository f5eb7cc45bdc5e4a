#!/bin/sh
# Installs or upgrades the platform on Debian 12, Ubuntu 24.04 and newer, and starts it.
#
#   usage: sh install.sh [--yes] [--from WHAT] [--image FILE] [--state-dir DIR] [--no-image] [--no-start]
#
#   --yes             install missing system packages without asking
#   --from WHAT       a wheel, a folder with the source, or a version on PyPI (2.1.0); without it the source
#                     that this script lies in, or the newest version on PyPI
#   --image FILE      take the base image from a file (`sandboxer image save base FILE`) instead of building it
#   --state-dir DIR   where everything is kept (/var/lib/sandboxer)
#   --no-image        make no base image      --no-start   start nothing
#
# The program goes into /opt/sandboxer, the command into /usr/local/bin. A new version is made beside the old
# one, and takes its place in one step when it is whole. `sandboxer uninstall` takes it away again.
set -eu

prefix=/opt/sandboxer
mark=$prefix/.installed-by-install.sh
command=/usr/local/bin/sandboxer
yes='' from='' image='' state=/var/lib/sandboxer with_image=1 with_start=1

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --yes | -y) yes=1 ;;
        --from | --image | --state-dir)
            [ $# -ge 2 ] || fail "$1 needs a value"
            case $1 in
                --from) from=$2 ;;
                --image) image=$2 ;;
                --state-dir) state=$2 ;;
            esac
            shift
            ;;
        --no-image) with_image='' ;;
        --no-start) with_start='' ;;
        --help | -h)
            sed -n '2,/^set -eu/{/^set/d;s/^# \{0,1\}//;p;}' "$0"
            exit 0
            ;;
        *) fail "unknown option $1; see --help" ;;
    esac
    shift
done

[ "$(id -u)" = 0 ] || fail 'run it as root: sudo sh install.sh'
[ "$(uname -s)" = Linux ] || fail 'sandboxes are made of Linux; this is not'
case $state in
    /*) ;;
    *) state=$PWD/$state ;;
esac
[ -z "$image" ] || [ -r "$image" ] || fail "there is no $image"
if [ -e "$prefix" ] && [ ! -e "$mark" ] && [ -n "$(ls -A "$prefix")" ]; then
    fail "$prefix is there already and was not made by this script; move it away"
fi

# ---- what is installed ----

here=$(CDPATH='' cd -- "$(dirname -- "$0")" 2>/dev/null && pwd) || here=''
kind=pypi
if [ -z "$from" ] && [ -n "$here" ] && [ -f "$here/../pyproject.toml" ] && [ -f "$here/install.sh" ]; then
    from=$(cd "$here/.." && pwd)
fi
if [ -d "$from" ]; then
    kind=source
    from=$(cd "$from" && pwd)
    [ -f "$from/pyproject.toml" ] || fail "$from holds no source of sandboxer"
elif [ -f "$from" ]; then
    kind=wheel
    from=$(realpath -- "$from")
else
    case $from in
        */* | *.whl) fail "there is no $from" ;;
    esac
fi

# ---- system packages ----

is_booted() { [ -d /run/systemd/system ]; }
missing=''
need() { # need PACKAGE 'what it is for' TEST…
    package=$1 purpose=$2
    shift 2
    if ! "$@" >/dev/null 2>&1; then
        missing="$missing $package"
        say "  $package: $purpose"
    fi
}
say 'System packages that are missing:'
need python3 'the platform is written in it' command -v python3
need python3-venv 'an environment of its own for its packages' python3 -c 'import venv, ensurepip'
need btrfs-progs 'disk limits and snapshots' command -v mkfs.btrfs
need util-linux 'loop devices and mounts' command -v losetup
need mount 'loop devices and mounts' command -v mount
need procps 'settings of the kernel' command -v sysctl
need ca-certificates 'downloads over TLS' test -s /etc/ssl/certs/ca-certificates.crt
if [ -n "$image" ]; then
    case $image in
        *.zst) need zstd 'unpacking the base image' command -v zstd ;;
    esac
elif [ -n "$with_image" ] && [ ! -e "$state/images/base/image.json" ]; then
    need mmdebstrap 'building the base image' command -v mmdebstrap
fi
if [ "$kind" = source ]; then
    need gcc 'building the guest' command -v gcc
    need libc6-dev 'building the guest' test -e /usr/include/stdlib.h
    need make 'building the guest' command -v make
fi
if [ -z "$missing" ]; then
    say '  none'
else
    command -v apt-get >/dev/null 2>&1 || fail 'this system has no apt-get: install the packages of the same purpose, and run this again'
    if [ -z "$yes" ]; then
        # The script itself may come by standard input; the person is at the terminal.
        (: </dev/tty) 2>/dev/null || fail "nobody is there to ask. Run it with --yes, or first: apt-get install$missing"
        printf 'Install them with apt-get? [y/N] '
        read -r answer </dev/tty || answer=''
        case $answer in
            y | Y | yes) ;;
            *) fail 'nothing was changed' ;;
        esac
    fi
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
        tail -n 15 "$log" >&2
        rm -f "$log"
        fail "apt-get could not install:$missing"
    fi
    rm -f "$log"
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed, and here is $(python3 --version)"

# ---- the program ----

mkdir -p "$prefix"
: >"$mark"
new=$prefix/venv.$(date +%Y%m%d%H%M%S).$$
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM
say "Making $new"
python3 -m venv "$new"
pip() { "$new/bin/python" -m pip --disable-pip-version-check --no-input install -q --progress-bar off --no-compile "$@"; }
# uv does in seconds what takes pip a minute. It does not read pip's settings: where they name another index, pip goes on.
uv=$new/.uv/bin/uv
fetch_uv() { "$new/bin/python" -m pip --disable-pip-version-check config list 2>/dev/null | grep -q index || pip --target "$new/.uv" "$@" || :; }
# What uv cannot do, pip tries too, and says in its own words.
add() { { [ -x "$uv" ] && "$uv" pip install -q --system-certs --python "$new/bin/python" "$@" 2>/dev/null; } || pip "$@"; }
case $kind in
    source)
        # As locked, by hash; nothing is fetched to build with. The copy is built: the source stays as it is.
        copy=$new/src
        mkdir "$copy"
        (cd "$from" && tar -c --exclude=./.git --exclude=./.venv --exclude=./guest/build --exclude='*/__pycache__' .) | tar -x -C "$copy"
        make -s -C "$copy/guest"
        awk '/^setuptools==/ {found = 1} found {print} found && !/\\$/ {exit}' "$copy/requirements.lock" >"$new/build.lock"
        fetch_uv --require-hashes -r "$copy/requirements-install.lock"
        add --require-hashes -r "$new/build.lock"
        add --require-hashes --no-build-isolation -r "$copy/requirements.lock"
        add --no-deps --no-build-isolation --no-index "$copy"
        rm -rf "$copy"
        ;;
    *)
        fetch_uv uv==0.13.8
        case $kind in
            wheel) add "${from}[server]" ;;
            pypi) add "sandboxer[server]${from:+==$from}" ;;
        esac
        ;;
esac
rm -rf "$new/.uv"
# What every start and every command loads is compiled here, for everybody to read. The rest, which is twice as
# much, compiles itself when it is first used.
(
    umask 022
    "$new/bin/python" -m compileall -q -j 0 "$new"/lib/python3*/site-packages/sandboxer || :
    "$new/bin/python" -c 'import sandboxer.edges.http.server; from sandboxer.edges.cli.main import load; load("up"), load("create")'
)
version=$("$new/bin/sandboxer" --version)
ln -s "$(basename "$new")" "$prefix/.venv.$$"
mv -T "$prefix/.venv.$$" "$prefix/venv"
trap - EXIT
mkdir -p "$(dirname "$command")"
if [ -e "$command" ] && [ "$(readlink "$command")" != "$prefix/venv/bin/sandboxer" ]; then
    say "$command is another program and stays; call $prefix/venv/bin/sandboxer"
    command=$prefix/venv/bin/sandboxer
else
    ln -sfn "$prefix/venv/bin/sandboxer" "$command"
fi
say "$version is in $prefix; the command is $command"

# ---- the base image ----

if [ -n "$image" ]; then
    "$command" image load "$image" --state-dir "$state"
elif [ -n "$with_image" ]; then
    "$command" image build base --state-dir "$state"
fi

# ---- the service ----

if [ -z "$with_start" ]; then
    say "Not started. Next: $command install (systemd), or $command up -d"
elif is_booted; then
    "$command" install --state-dir "$state"
else
    say 'No systemd runs this machine: starting a process of its own'
    "$command" down --state-dir "$state"
    "$command" up -d --state-dir "$state"
fi
# What ran from the old version has been replaced by now; a server that was not restarted keeps its own.
if [ -n "$with_start" ]; then
    for old in "$prefix"/venv.*; do
        [ "$old" = "$new" ] || rm -rf "$old"
    done
fi
