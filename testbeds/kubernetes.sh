#!/usr/bin/env bash
# A real Kubernetes of one node on this machine, in namespaces of its own: `kubernetes.sh run FOLDER`.
#
# etcd, API server, controllers, scheduler, kubelet, containerd and all pods are in one network, mount
# and process namespace, which ends with the first process in it; so nothing is left of them but empty
# control groups, which go as well. FOLDER gets kubeconfigs (`admin`, and `lab` of a user without any
# right), a `kubectl` that enters the network, logs, and at the end of the start the file `ready`.
# SIGTERM ends all.
#
# Kubernetes 1.20.2 comes from Debian's source package, since Debian has no packages of its servers.
# `kubernetes.sh build` compiles it into CACHE (13 minutes on two cores, once, 4 GB), as `run` does not.
#
# Pods have no image to pull: theirs is empty, and this machine's /usr, Python, .venv and checkout are
# mounted in it. What it is not: NetworkPolicies are not enforced, and there are no GPUs. A node that
# does not answer is not ready after 8 s (instead of 40), and its pods are deleted 3 s later (300).
set -euo pipefail
export CACHE=${KUBERNETES_TESTBED:-${XDG_CACHE_HOME:-$HOME/.cache}/cifar10-kubernetes}
SERVERS='kube-apiserver kube-controller-manager kube-scheduler kubelet'
ROOT=$(readlink -f "$(dirname "$0")/..")
ADDRESS=10.77.0.1

missing() { for name in $SERVERS; do [ -x "$CACHE/bin/$name" ] || echo "$name"; done; }

is_built() { [ -z "$(missing)" ]; } # .ci/run asks

build() {
  [ -n "$(missing)" ] || return 0
  if ! command -v go >/dev/null || ! apt-get source --print-uris kubernetes >/dev/null 2>&1; then
    echo 'building Kubernetes needs golang-go, deb-src in the sources of apt, and then apt-get update' >&2
    exit 2
  fi
  echo "Building Kubernetes' servers in $CACHE: 13 minutes on two cores, once."
  local source=$CACHE/gopath/src/k8s.io/kubernetes
  # Go 1.19 would change the vendored modules' list in module mode; Debian builds without it, too.
  export GO111MODULE=off GOFLAGS= CGO_ENABLED=0 GOCACHE=$CACHE/gocache GOPATH=$CACHE/gopath
  mkdir -p "$CACHE/bin" "$source"
  cd "$CACHE"
  apt-get source --download-only kubernetes # what is there already stays, if it is whole
  tar xzf kubernetes_*.orig.tar.gz -C "$source" --strip-components=1
  cd "$source"
  # reflect2 1.0.1 takes the runtime's iterator of maps for what it was before Go 1.18; 1.0.2 does this:
  sed -i 's/m unsafe.Pointer) \*hiter/m unsafe.Pointer, it *hiter)/
    s/\t\/\/ rest fields are ignored/\trest [12]uintptr/' vendor/github.com/modern-go/reflect2/unsafe_link.go
  sed -i 's/\treturn &UnsafeMapIterator{/\tvar it hiter\n\tmapiterinit(type2.rtype, *(*unsafe.Pointer)(obj), \&it)\n&/
    s/mapiterinit(type2.rtype, \*(\*unsafe.Pointer)(obj)),/\&it,/' vendor/github.com/modern-go/reflect2/unsafe_map.go
  # The one file that the package's build generates: the schemas of all types with this mark.
  go build -o "$CACHE/bin/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  local marked='--include=*.go +k8s:openapi-gen='
  { (cd staging/src && grep -rl $marked k8s.io | grep -vE '^k8s.io/(code-generator|sample-apiserver)/' |
      sed 's,^,k8s.io/kubernetes/vendor/,')
    grep -rl $marked pkg cmd | sed 's,^,k8s.io/kubernetes/,'
  } | xargs -n1 dirname | sort -u | paste -sd, >"$CACHE/packages"
  "$CACHE/bin/openapi-gen" --go-header-file hack/boilerplate/boilerplate.generatego.txt \
    --output-base "$GOPATH/src" -i "$(cat "$CACHE/packages")" -O zz_generated.openapi \
    -p k8s.io/kubernetes/pkg/generated/openapi -r "$CACHE/violations"
  local version=k8s.io/kubernetes/vendor/k8s.io/component-base/version
  for name in $SERVERS; do
    echo "Building $name"
    go build -trimpath -o "$CACHE/bin/$name" -ldflags "-s -w -X $version.gitMajor=1 \
      -X $version.gitMinor=20 -X $version.gitVersion=v1.20.2" "./cmd/$name"
  done
}

kubeconfig() { # USER, who is its own token
  cat >"$FOLDER/$1" <<END
{"apiVersion": "v1", "kind": "Config", "current-context": "testbed",
 "clusters": [{"name": "testbed", "cluster": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": true}}],
 "users": [{"name": "$1", "user": {"token": "$1"}}],
 "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "$1", "namespace": "lab"}}]}
END
}

image() { # NAME ENTRYPOINT [PROGRAM]: imports an image with empty folders, and a program if given
  local work=$STATE/image
  rm -rf "$work" && mkdir -p "$work/root"/{usr,etc,data,tmp,proc,sys,dev}
  for name in bin lib lib64 sbin; do ln -s "usr/$name" "$work/root/$name"; done
  [ -z "${3:-}" ] || cp "$3" "$work/root"
  tar cf "$work/layer.tar" -C "$work/root" .
  cat >"$work/config.json" <<END
{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids":
 ["sha256:$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)"]}, "config": {"Entrypoint": [$2], "WorkingDir": "/data",
 "Env": ["PATH=/venv/bin:/usr/sbin:/usr/bin", "HOME=/tmp", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"]}}
END
  echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$1\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
  tar c -C "$work" manifest.json config.json layer.tar | ctr images import - >/dev/null
}

until_it() { # COMMAND...: waits until it succeeds, at most a minute
  for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
  echo "not within a minute: $*; see the logs in $FOLDER" >&2
  exit 1
}

start() { # NAME COMMAND...
  local name=$1; shift
  "$@" >"$FOLDER/$name.log" 2>&1 &
}

inside() { # in the new namespaces, as their first process
  FOLDER=$1 STATE=/run/testbed
  VENV=$(readlink -f "$ROOT/.venv") PYTHON=$(dirname "$(dirname "$(readlink -f "$ROOT/.venv/bin/python")")")
  # Nothing of the machine's own is written: its folders are covered, and a kubelet's settings of the
  # kernel go into copies.
  mount --make-rprivate / && mount --make-rshared /
  for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs $place; done
  mkdir -p $STATE
  for name in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    echo "${name#*=}" >"$STATE/sysctl.${name//[\/=]/.}"
    mount --bind "$STATE/sysctl.${name//[\/=]/.}" "/proc/sys/${name%=*}"
  done
  ip link set lo up
  ip link add cni0 type bridge && ip address add $ADDRESS/24 dev cni0 && ip link set cni0 up

  for user in admin lab kubelet; do kubeconfig $user; done
  cat >$STATE/tokens <<END
admin,admin,1,system:masters
lab,lab,2
kubelet,system:node:node-a,3,system:nodes
END
  openssl genrsa -out $STATE/accounts.key 2048 2>/dev/null
  start etcd etcd --data-dir $STATE/etcd --unsafe-no-fsync
  start apiserver "$CACHE/bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --cert-dir=$STATE/pki \
    --bind-address=127.0.0.1 --advertise-address=$ADDRESS --service-cluster-ip-range=10.96.0.0/16 \
    --service-account-key-file=$STATE/accounts.key --service-account-signing-key-file=$STATE/accounts.key \
    --service-account-issuer=https://testbed --token-auth-file=$STATE/tokens --authorization-mode=Node,RBAC \
    --kubelet-preferred-address-types=InternalIP \
    --default-not-ready-toleration-seconds=3 --default-unreachable-toleration-seconds=3
  export KUBECONFIG=$FOLDER/admin
  until_it kubectl get --raw /readyz
  start controllers "$CACHE/bin/kube-controller-manager" --kubeconfig="$KUBECONFIG" --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file=$STATE/accounts.key \
    --node-monitor-period=1s --node-monitor-grace-period=8s --node-eviction-rate=10
  start scheduler "$CACHE/bin/kube-scheduler" --kubeconfig="$KUBECONFIG" --leader-elect=false
  kubectl create namespace lab >/dev/null

  # Pods find each other by the names of a headless Service, which a cluster's DNS reads from Endpoints.
  touch $STATE/hosts
  start dns dnsmasq --keep-in-foreground --no-resolv --no-hosts --addn-hosts=$STATE/hosts --user=root \
    --listen-address=$ADDRESS --bind-interfaces --log-facility=- --pid-file=$STATE/dns.pid
  local all='{{range .items}}{{$of := .metadata}}{{range .subsets}}{{range .addresses}}{{.ip}} {{.hostname}}.'
  all+='{{$of.name}}.{{$of.namespace}}.svc.cluster.local{{"\n"}}{{end}}{{end}}{{end}}'
  while sleep 0.5; do
    kubectl get endpoints --all-namespaces --output=go-template="$all" >$STATE/hosts.new 2>/dev/null || continue
    cmp -s $STATE/hosts.new $STATE/hosts || { cp $STATE/hosts.new $STATE/hosts && pkill -HUP -F $STATE/dns.pid; }
  done &

  mkdir $STATE/cni
  cat >$STATE/cni/10-testbed.conflist <<END
{"cniVersion": "0.4.0", "name": "testbed", "plugins": [{"type": "bridge", "bridge": "cni0", "hairpinMode": true,
 "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "rangeStart": "10.77.0.20", "gateway": "$ADDRESS",
 "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$STATE/addresses"}}]}
END
  # What stands in for an image: this machine's programs, and the code as the Dockerfile copies it.
  ctr oci spec | ROOT=$ROOT "$VENV/bin/python" -c '
import json, os, sys
spec, code, (venv, python) = json.load(sys.stdin), os.environ["ROOT"], sys.argv[1:]
places = {"/usr": "/usr", "/etc": "/etc", python: python, venv: "/venv"}  # A pod has a /tmp of its own.
for name in ("cifar10_main.py", "cifar10_program", "cifar10", "data_prep"):
    places[f"{code}/{name}"] = f"/data/{name}"
spec["mounts"] += [{"source": path, "destination": to, "type": "bind", "options": ["rbind", "ro"]}
                   for path, to in places.items()]
print(json.dumps(spec))' "$VENV" "$PYTHON" >$STATE/spec.json
  cat >$STATE/containerd.toml <<END
version = 2
root = "$STATE/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "testbed/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  cni.bin_dir = "/usr/lib/cni"
  cni.conf_dir = "$STATE/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "$STATE/spec.json"
END
  start containerd containerd --config $STATE/containerd.toml
  export CONTAINERD_NAMESPACE=k8s.io
  until_it ctr version
  # What holds a pod's namespaces has no mounts but its own, so it is a static program.
  echo 'int pause(void); int main(void) { return pause(); }' | gcc -static -x c -o $STATE/pause -
  image testbed/pause:1 '"/pause"' $STATE/pause
  image docker.io/library/cifar10:latest '"python"'
  cat >$STATE/kubelet.yaml <<END
{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
 "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}}, "authorization": {"mode": "AlwaysAllow"},
 "clusterDNS": ["$ADDRESS"], "clusterDomain": "cluster.local", "resolvConf": "", "failSwapOn": false, "oomScoreAdj": 0,
 "cgroupsPerQOS": false, "enforceNodeAllocatable": [], "cpuCFSQuota": false, "maxOpenFiles": 10000, "healthzPort": 0,
 "nodeStatusUpdateFrequency": "4s", "imageGCHighThresholdPercent": 100,
 "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"}}
END
  start kubelet "$CACHE/bin/kubelet" --config=$STATE/kubelet.yaml --kubeconfig="$FOLDER/kubelet" \
    --hostname-override=node-a --node-ip=$ADDRESS --root-dir=$STATE/kubelet --cert-dir=$STATE/pki-kubelet \
    --container-runtime=remote --container-runtime-endpoint=unix:///run/containerd/containerd.sock
  until_it kubectl wait --for=condition=Ready node/node-a --timeout=60s
  touch "$FOLDER/ready"
  wait
}

run() {
  FOLDER=$(readlink -f "$1")
  if [ -n "$(missing)" ]; then
    echo "no $(missing | paste -sd' ') in $CACHE/bin; make test-kubernetes builds them (13 minutes, once)" >&2
    exit 2
  fi
  unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0" inside "$FOLDER" &
  local first=$!
  trap 'kill -KILL "$first"; wait "$first" 2>/dev/null; sleep 1; find /sys/fs/cgroup/*/k8s.io -depth -type d -exec rmdir {} + 2>/dev/null' EXIT
  trap 'exit 0' TERM INT
  printf '#!/bin/sh\nexec nsenter --net=/proc/%s/ns/net %s "$@"\n' "$first" "$(command -v kubectl)" >"$FOLDER/kubectl"
  chmod +x "$FOLDER/kubectl"
  wait "$first"
}

"$@"
