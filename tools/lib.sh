# shellcheck shell=bash
# What the scripts of this folder share. They source it, which also moves them to the root of the project.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*"; }

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# quietly LOG COMMAND...: output goes to the file LOG; its end is shown when the command fails.
quietly() {
    local log=$1
    shift
    mkdir -p "$(dirname "$log")"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 40 "$log" >&2
        printf '%s: failed: %s (all output: %s)\n' "${0##*/}" "$*" "$log" >&2
        return 1
    fi
}

# install_packages NAME...: the Debian packages that are not installed yet; asks apt for nothing when all are.
install_packages() {
    command -v dpkg-query >/dev/null || {
        say "this is no Debian: make sure that these packages or their like are installed: $*"
        return 0
    }
    local missing=() package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0

    local as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || die "needs root or sudo to install: ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
               apt-get -q -y -o DPkg::Lock::Timeout=300)
    # A fresh machine has no package lists, and old lists name files that are gone: read them again and retry.
    # What `update` cannot read may be another registry's, so that only the second try decides.
    "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null 2>&1 </dev/null && return 0
    mkdir -p build
    "${apt[@]}" update >build/apt.log 2>&1 </dev/null || true
    quietly build/apt.log "${apt[@]}" install --no-install-recommends "${missing[@]}" ||
        die "could not install ${missing[*]}"
}

# configure_and_build PRESET [CMAKE ARGUMENT...]
configure_and_build() {
    local preset=$1
    shift
    quietly "build/$preset-configure.log" cmake --preset "$preset" "$@" &&
        quietly "build/$preset-build.log" cmake --build --preset "$preset" -j "$(nproc)"
}

# What CMakeLists.txt needs for the program alone.
build_packages=(g++ cmake ninja-build nlohmann-json3-dev libfmt-dev libcli11-dev zlib1g-dev nettle-dev
                libyaml-cpp-dev libtomlplusplus-dev libpcre2-dev rapidjson-dev libprotobuf-dev protobuf-compiler
                libopenmpi-dev)
# … and with tests.
# shellcheck disable=SC2034  # used by the scripts
test_packages=("${build_packages[@]}" libgmock-dev python3 openmpi-bin)

# venv_python NAME REQUIREMENTS WHAT: prints the Python of a venv with these packages, made on first use and anew
# when they change.
venv_python() {
    local venv=${XDG_CACHE_HOME:-~/.cache}/fsdplan/$1 wanted=$2
    if ! cmp -s "$wanted" "$venv/fsdplan-requirements.txt"; then
        install_packages python3 python3-venv >&2
        say "installing $3 into $venv (once)" >&2
        { quietly "build/$1.log" /usr/bin/python3 -m venv --clear "$venv" &&
            quietly "build/$1.log" "$venv/bin/python" -m pip install -r "$wanted"; } || return 1
        cp "$wanted" "$venv/fsdplan-requirements.txt"
    fi
    printf '%s\n' "$venv/bin/python"
}

# torch_python: the one with the PyTorch that fsdplan follows.
torch_python() { venv_python venv tests/live/requirements.txt "PyTorch, several GB,"; }

# trace_python: the one with the Perfetto that opens our traces.
trace_python() { venv_python venv-trace tests/browser/requirements.txt "Perfetto"; }
