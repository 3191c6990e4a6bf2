# Sourced by the build scripts: a cache that is complete or built anew, and Debian's packages.
# shellcheck shell=bash

say() { printf '[%4ds] %s\n' "$SECONDS" "$*" >&2; }
die() { say "$*"; exit 1; }

# wanted PROGRAM...: those that KUBEBUILDER_ASSETS lacks, and that must be built.
wanted() {
    for program; do
        [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$program" ] || echo "$program"
    done
}

complete() { # RECIPE PROGRAM...: whether the cache was made by this recipe and has the programs
    [ "$(cat "$cache/recipe" 2>/dev/null)" = "$1" ] || return
    for program in "${@:2}"; do [ -x "$cache/bin/$program" ] || return; done
}

# begin CACHE RECIPE PROGRAM...: ends the script when the cache is complete; else empties it.
begin() {
    cache=$1 recipe=$2 work=$1/work
    if complete "${@:2}"; then
        say "complete: $cache"
        exit 0
    fi
    for program in apt-get dpkg-source python3; do
        command -v $program >/dev/null || die "$program is missing (apt-get install apt dpkg-dev python3)"
    done
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock -n 9 || { say "another build is under way, waiting for it"; flock 9; }
    if complete "${@:2}"; then exit 0; fi
    rm -rf "$cache"/{recipe,bin,cni,debian,images,proto,work}
    mkdir -p "$cache"/{bin,debian,proto} "$work"/{apt/lists/partial,apt/archives/partial,debs}
}

finish() {
    say "built; the build tree took $(du -sh "$work" | cut -f1), what stays takes $(du -sh --exclude=work "$cache" | cut -f1)"
    cd /
    [ -n "${KEEP_BUILD:-}" ] || { chmod -R u+w "$work"; rm -rf "$work"; }
    echo "$recipe" >"$cache/recipe"
    say "complete: $cache"
}

# The kubelet's protocols, less the options of a Go-only protobuf library: as they are, protoc for
# any language reads them.
protocols() { # FOLDER, of the kubelet's API
    for api in deviceplugin/v1beta1 podresources/v1; do
        sed -E '/gogo\.proto"|^option \(gogoproto/d; s/ *\[\(gogoproto[^]]*\]//' \
            "$1/pkg/apis/$api/api.proto" >"$cache/proto/${api%/*}.proto"
    done
}

# The machine's Debian mirrors, whatever format they are written in, as
# "deb"/"deb-src" lines for the suite wanted here.
debian_mirrors() {
    python3 - "$suite" <<'PYTHON'
import pathlib, re, sys

suite = sys.argv[1]
release = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.M))
here = {release.get("VERSION_CODENAME"), "stable", "testing", "unstable", "sid"}
found = []  # (uri, suite)

def entry(uris, suites, components, signed_by):
    if "main" in components and ("debian" in signed_by or not signed_by):
        found.extend((u.rstrip("/"), s) for u in uris for s in suites)

apt = pathlib.Path("/etc/apt")
for path in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]:
    text = "\n".join(l for l in path.read_text().splitlines() if not l.startswith("#")) if path.is_file() else ""
    if path.suffix == ".sources":
        for stanza in re.split(r"\n\s*\n", text):
            field = {k.lower(): v for k, v in re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", stanza, re.M)}
            if field.get("enabled", "yes").strip() != "no":
                entry(*(field.get(k, "").split() for k in ("uris", "suites", "components")), field.get("signed-by", ""))
    elif path.suffix == ".list":
        for options, uri, its_suite, components in re.findall(
                r"^deb(?:-src)?\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+(.+)$", text, re.M):
            entry([uri], [its_suite], components.split(), "".join(re.findall(r"signed-by=(\S+)", options)))

keyring = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
option = f"[signed-by={keyring}] " if keyring.exists() else ""
for uri, its_suite in dict.fromkeys(found):
    base, _, pocket = its_suite.partition("-")
    if base in here and pocket in ("", "security", "updates"):
        for kind in ("deb", "deb-src"):
            print(f"{kind} {option}{uri} {'-'.join(filter(None, (suite, pocket)))} main")
PYTHON
}

read_package_lists() {
    debian_mirrors >"$work/apt/sources.list"
    [ -s "$work/apt/sources.list" ] || die "no Debian mirror in /etc/apt/sources.list or sources.list.d"

    # apt with a state of its own, so that the machine's lists are neither needed
    # nor touched. Everything fetched is checked against the archive's signature.
    apt=(-qq -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
         -o Dir::State::Lists="$work/apt/lists" -o Dir::Cache="$work/apt" -o APT::Sandbox::User="$(id -un)")

    say "reading the package lists of $suite"
    apt-get "${apt[@]}" update || say "some list could not be had; going on"
}
