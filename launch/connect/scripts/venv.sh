# Makes a venv as `make venv` does, unless it is there.
end_with_the_launcher
hold
name=$venv
venv=$(readlink -m "$venv")
if [ -x "$venv/bin/python" ] && cmp -s "$lock" "$venv/.installed.lock"; then
    finish "$name is there"
fi
[ ! -e "$venv" ] || [ -e "$venv/pyvenv.cfg" ] || fail "$name is there and is no venv; move it away"
rm -rf "$venv"
fits='import sys, ensurepip; sys.exit(not (3, 9) <= sys.version_info < (3, 12))'
for python in python3.11 python3.10 python3.9 python3 python "$agent_python" ''; do
    "$python" -c "$fits" 2>/dev/null && break
done
[ "$python" ] || fail "it has no Python 3.9, 3.10 or 3.11 that can make a venv on PATH; \
on Debian: apt-get install python3-venv"
say "makes $name from $lock, which takes one to two minutes"
"$python" -m venv "$venv" || fail "$python -m venv ended with exit code $?"
case $lock in *.lock) hashes="--require-hashes --only-binary :all:";; *) hashes=;; esac
"$venv/bin/python" -m pip install --disable-pip-version-check --no-compile --no-input \
    --progress-bar off $hashes -r "$lock" || fail "pip ended with exit code $?"
printf %s "$lock" >"$venv/.installed" && cp "$lock" "$venv/.installed.lock"
finish "$name made"
