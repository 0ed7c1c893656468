# Functions of the other scripts, before which this one runs.

# Prints a line to show; login shells and programs print others.
say() { printf '\n%s%s\n' "$mark" "$*"; }
fail() { say "failed: $*"; exit 1; }
finish() { say "$*"; exit; }
place() { case $1 in '~'|'~/'*) printf %s "$HOME${1#?}";; *) printf %s "$1";; esac; }
begin() {
    say begun
    mkdir -p "$workdir" && cd "$workdir" ||
        fail "$workdir cannot be used; choose another folder with --workdir"
}
hold() {
    exec 9>>.setup.lock
    flock -n 9 && return
    say "waits for another setup in $(pwd)"
    flock 9 || say "no lock in $(pwd); if hosts share it, prepare one at a time: --hosts NAME"
}
end_with_the_launcher() {
    exec 3<&0 0</dev/null
    (cat <&3; kill -9 0) >/dev/null 2>&1 &
    trap "kill $!" EXIT
}
# Unpacks what comes into .setup.part. `is_sent` finds what `tar` could not read at the launcher: it
# fills that up with zeros.
unpack() {
    rm -rf .setup.part && mkdir .setup.part && tar -xof - -C .setup.part &&
        [ "$(find .setup.part -type f | wc -l)" -eq "$count" ] && (cd .setup.part && is_sent) ||
        fail "$1 could not be unpacked, or differ from what is here; nothing has changed"
}
