# Shared by the scripts beside it; sourced, not run. `prepare` makes the project's environment out of whatever
# Python this machine has, and `in_env COMMAND…` runs a command in it.

root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
tools=$root/.tools

# The private copy is pinned. A uv that is already here may be any that knows dependency groups.
uv_version=0.13.7
uv_oldest=0.5.0

# say LINE…
say() { printf '%s\n' "$@" >&2; }

die() {
    say "$@"
    exit 1
}

# in_env COMMAND…: the caller's directory stays, so that files named on the command line are found.
in_env() { "$uv" run --project "$root" --no-sync -- "$@"; }

# prepare UV_SYNC_OPTION…: a package that is here beyond what is asked for (an extra, say) stays.
prepare() {
    configure_uv
    uv=$(find_uv) || {
        install_uv
        uv=$tools/uv
    }
    choose_python
    "$uv" sync --project "$root" --frozen --inexact "$@" || die \
        "uv could not prepare $root/.venv (its message is above). Without a network the first run cannot work;" \
        "after a change of Python, remove that folder and run again."
    # uv compiles what it installs. Verbs, servers and ranks run from these sources, by users too who may not write
    # here, or have PYTHONDONTWRITEBYTECODE set: each process would compile them, a server for a third of a second.
    "$root/.venv/bin/python" -m compileall -q "$root/src/phalanx" || true
}

configure_uv() {
    # An environment that happens to be active is not the project's.
    unset VIRTUAL_ENV
    export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-120}
    # Compiled once here, also where Python may not write beside its sources: `phalanx --help` starts twice as fast.
    export UV_COMPILE_BYTECODE=${UV_COMPILE_BYTECODE:-1}
    # Where a company's proxy signs the traffic, only the system's certificates know it.
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true}
    fi
    if [ ! -w "${XDG_CACHE_HOME:-${HOME:-/nowhere}}" ]; then
        export UV_CACHE_DIR=${UV_CACHE_DIR:-$tools/cache}
    fi
}

find_uv() {
    local candidate version
    for candidate in "$tools/uv" "$(command -v uv)"; do
        # A shim on PATH may stand for nothing, so it must answer.
        version=$("$candidate" --version 2>/dev/null | cut -d' ' -f2) || continue
        if [ "$(printf '%s\n' "$uv_oldest" "$version" | sort -V | head -n1)" = "$uv_oldest" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# Any Python that still gets packages can fetch uv, also one that is too old for phalanx.
install_uv() {
    local python scratch
    python=$(find_python 3 11) || python=$(find_python 3 8) || {
        apt_install python3 python3-venv && python=$(find_python 3 8)
    } || die "phalanx needs Python 3.11 or newer, and there is none on PATH." \
        "On Debian or Ubuntu type: sudo apt-get install python3 python3-venv"

    say "fetching uv $uv_version into $tools"
    mkdir -p "$tools"
    scratch=$(mktemp -d "$tools/new.XXXXXX")
    uv_by_venv "$python" "$scratch" || uv_by_pip "$python" "$scratch" || uv_by_hand "$python" "$scratch" || {
        apt_install ca-certificates "$(venv_package "$python")" && uv_by_venv "$python" "$scratch"
    } || {
        sed 's/^/    /' "$scratch/log" >&2
        rm -rf "$scratch"
        die "uv could not be fetched: this is what was tried. With no network, or behind a proxy, put uv on PATH first." \
            "Else, on Debian or Ubuntu, type: sudo apt-get install ca-certificates $(venv_package "$python")"
    }
    # Moved in one step: a second run beside this one sees no uv or a whole one.
    mv -f "$scratch/uv" "$tools/uv"
    rm -rf "$scratch"
}

uv_by_venv() {
    "$1" -m venv --clear "$2/venv" >>"$2/log" 2>&1 &&
        pip_install "$2/venv/bin/python" "$2/log" &&
        mv "$2/venv/bin/uv" "$2/uv"
}

# `--target` is a private folder, which also a Python that the distribution manages allows.
uv_by_pip() {
    pip_install "$1" "$2/log" --target "$2/packages" &&
        mv "$2/packages/bin/uv" "$2/uv"
}

uv_by_hand() { "$1" "$root/scripts/fetch_uv.py" "$uv_version" "$2/uv" >>"$2/log" 2>&1; }

pip_install() {
    local python=$1 log=$2
    shift 2
    PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "$python" -m pip install --quiet --only-binary :all: "$@" "uv==$uv_version" >>"$log" 2>&1
}

apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing $* with apt-get"
    apt-get update -qq >/dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Debian's own python3 has python3-venv; python3.12 beside it has python3.12-venv.
venv_package() {
    case $1 in
    */python3) echo python3-venv ;;
    *) echo "$(basename -- "$1")-venv" ;;
    esac
}

# find_python MAJOR MINOR: the first Python on PATH that is at least this, behind any shim or active environment. For
# root one that other users can run goes first: jobs of a server that is root run as such.
find_python() {
    local found
    found=$(pythons "$@")
    [ -n "$found" ] || return 1
    if [ "$(id -u)" = 0 ]; then
        while read -r python; do
            setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$python" 2>/dev/null || continue
            printf '%s\n' "$python"
            return
        done <<<"$found"
    fi
    head -n1 <<<"$found"
}

# pythons MAJOR MINOR: all on PATH that are at least this, and the system's own.
pythons() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python /usr/bin/python3; do
        "$name" - "$1" "$2" 2>/dev/null <<'PYTHON' || continue
import sys
if sys.version_info < (int(sys.argv[1]), int(sys.argv[2])):
    sys.exit(1)
print(getattr(sys, "_base_executable", sys.executable))
PYTHON
    done
}

# An environment that works is kept; UV_PYTHON chooses another. uv fetches a Python only where none will do.
choose_python() {
    local python
    if [ -n "${UV_PYTHON:-}" ] || "$root/.venv/bin/python" -c pass 2>/dev/null; then
        return
    fi
    if python=$(find_python 3 11); then
        export UV_PYTHON=$python UV_PYTHON_DOWNLOADS=never
    else
        say "no Python 3.11 or newer on PATH: uv looks elsewhere, and fetches one if it must"
    fi
}
