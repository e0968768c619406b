# Sourced by the other scripts, with the names of the programs they need: `source scripts/_setup.sh tmux gcc`.
# Afterwards VENV is a virtual environment with this package and its tools, and its bin is first in PATH.
#
# The environment is .venv beside this folder, or $SUPERVISE_VENV; $PYTHON names the interpreter to make it with.
# It is made anew when pyproject.toml, the interpreter or the place of the repository changed, else left as it is.
# As root on Debian or Ubuntu missing programs are installed; otherwise they are named and the script ends.

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${SUPERVISE_VENV:-$REPO/.venv}"

say() { echo "$*" >&2; }

# apt_install PACKAGE...: installs them, or says what to install and ends.
apt_install() {
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        say "missing: $*. Install them first: sudo apt-get install $*"
        exit 1
    fi
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || say "apt-get update failed: trying with the lists that are here"
    apt-get install -y -qq --no-install-recommends "$@" >&2
}

need_programs() {
    local missing=() program
    for program in "$@"; do
        PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null && continue
        case "$program" in
            sshd) missing+=(openssh-server) ;;
            ssh) missing+=(openssh-client) ;;
            *) missing+=("$program") ;;
        esac
        [[ "$program" == gcc ]] && missing+=(libc6-dev) # a compiler without headers compiles nothing
    done
    [[ ${#missing[@]} == 0 ]] || apt_install "${missing[@]}"
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

# Prints the first Python from 3.10 on.
find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

version() { "$1" -c 'import sys; print(sys.version)' 2>/dev/null; }

# What the environment depends on: when it is the same, there is nothing to do.
stamp() {
    echo "$REPO"
    version "$1"
    cat "$REPO/pyproject.toml"
}

# Errors are handed on by hand: bash does not stop at one inside `if`, `&&` and `||`, where this is called.
make_venv() {
    local python="$1"
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        apt_install "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" || return 1
    fi
    if [[ -e "$VENV" && ! -e "$VENV/pyvenv.cfg" && -n "$(ls -A "$VENV")" ]]; then
        say "$VENV is there and is no virtual environment: move it away, or set SUPERVISE_VENV to another place"
        return 1
    fi
    say "setting up $VENV (once; about a minute)"
    if [[ "$(version "$VENV/bin/python")" != "$(version "$python")" ]] || ! "$VENV/bin/python" -c 'import pip'; then
        "$python" -m venv --clear "$VENV" || return 1
    fi
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$REPO[dev]" >&2
}

set_up() {
    local python
    if [[ -z "${PYTHON:-}" ]] && is_new_enough "$VENV/bin/python"; then
        python="$VENV/bin/python"
    elif ! python="$(find_python)"; then
        apt_install python3 python3-venv || return 1
        python="$(find_python)" || { say "no Python from 3.10 on: install one, or name it in PYTHON"; return 1; }
    fi
    [[ "$(cat "$VENV/.setup.stamp" 2>/dev/null)" != "$(stamp "$python")" ]] || return 0
    make_venv "$python" || return 1
    stamp "$VENV/bin/python" >"$VENV/.setup.stamp"
}

need_programs "$@"
export HOME="${HOME:-/nonexistent}" # unset under some service managers; pip then works without its cache
# One at a time; in a subshell, so that nothing started later inherits the lock.
(flock 9 && set_up) 9<"$REPO/pyproject.toml" || exit 1
export PATH="$VENV/bin:$PATH" VIRTUAL_ENV="$VENV"
unset PYTHONHOME
