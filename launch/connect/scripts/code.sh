# Makes the code the same as at the launcher. Files that are not in the archive go, since Python would
# import them.
is_sent() {
    [ "$(find . -type f | LC_ALL=C sort | tr '\n' '\0' | xargs -0 cat | sha256sum)" = "$sum  -" ]
}
hold
unpack "files of the code"
find $packages -name '*.py' 2>/dev/null | while read -r path; do
    [ -e ".setup.part/$path" ] || rm -f "$path"
done
(cd .setup.part && find . -type f) | while read -r path; do
    mkdir -p "$(dirname "$path")" && mv -f ".setup.part/$path" "$path" || exit
done && rm -rf .setup.part || fail "the code could not be replaced"
finish "$count files copied"
