#!/usr/bin/env bash
# Installs what the system tests need and this machine lacks; Debian, as root or with sudo.
set -euo pipefail

declare -A package_of=(
  [podman]=podman
  [buildah]=buildah
  [runc]=runc
  [mmdebstrap]=mmdebstrap
  [chromium]=chromium
  [sshd]=openssh-server
  [ssh]=openssh-client
  [rsync]=rsync
  [ip]=iproute2
  [slurmctld]=slurm-wlm
  [munged]=munge
  [kubectl]=kubernetes-client
  [etcd]=etcd-server
  [containerd]=containerd
  [dnsmasq]=dnsmasq-base
  [conntrack]=conntrack
  [iptables]=iptables
  [openssl]=openssl
  [/usr/lib/cni/bridge]=containernetworking-plugins
)
missing=()
PATH=$PATH:/usr/sbin # sshd; not on the PATH of every user
for command in "${!package_of[@]}"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
echo "Installing ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "The system tests need ${missing[*]}, and there is no apt-get to install them with." >&2
  exit 2
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
