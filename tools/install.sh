#!/bin/sh
# Installs the command `trainmaster` for this user, from this checkout, and removes it: make install, make uninstall.
# With pipx or uv it is one of their tools. Without them it has a virtual environment of its own.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
environment=${XDG_DATA_HOME:-$HOME/.local/share}/trainmaster
bin=$HOME/.local/bin

say() {
    echo "trainmaster: $*"
}

need_python() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && return
    say "needs Python 3.11 or newer; choose one with: make PYTHON=/path/to/python3.11 install" >&2
    exit 1
}

has() {
    command -v "$1" > /dev/null
}

install_into_environment() {
    say "making a virtual environment in $environment: 10 s"
    "$python" -m venv --clear "$environment"
    say "downloading and installing its packages: about 1 minute"
    "$environment/bin/python" -m pip install --quiet --require-hashes -r "$checkout/requirements/run.txt"
    say "installing trainmaster itself: 10 s"
    "$environment/bin/python" -m pip install --quiet --no-deps "$checkout"
    mkdir -p "$bin"
    ln -sf "$environment/bin/trainmaster" "$bin/trainmaster"
}

install() {
    need_python
    if has pipx; then
        say "pipx installs it with its packages: about 1 minute"
        pipx install --force --python "$python" "$checkout"
        bin=$(pipx environment --value PIPX_BIN_DIR)
    elif has uv; then
        say "uv installs it with its packages: up to 1 minute"
        uv tool install --force --python "$python" "$checkout"
        bin=$(uv tool dir --bin)
    else
        install_into_environment
    fi
    case ":$PATH:" in
        *":$bin:"*) say "installed as $bin/trainmaster, which is in your PATH" ;;
        *) say "installed as $bin/trainmaster; add the folder to your PATH: export PATH=\"$bin:\$PATH\"" ;;
    esac
}

uninstall() {
    if has pipx && pipx list --short | grep -q '^trainmaster '; then
        pipx uninstall trainmaster
    fi
    if has uv && uv tool list 2> /dev/null | grep -q '^trainmaster '; then
        uv tool uninstall trainmaster
    fi
    if [ -f "$environment/pyvenv.cfg" ]; then
        rm -rf "$environment"
        rm -f "$bin/trainmaster"
    fi
    say "removed; what it kept of your jobs is in ${XDG_STATE_HOME:-$HOME/.local/state}/trainmaster"
}

case ${1:-} in
    install) install ;;
    uninstall) uninstall ;;
    *) echo "usage: $0 install|uninstall" >&2; exit 2 ;;
esac
