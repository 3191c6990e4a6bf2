"""The control plane: etcd, API server, controller manager, scheduler and DNS on one machine."""

import sys

from tests.e2e.cluster.machine import Machine
from tests.e2e.cluster.pki import Pki
from tests.e2e.cluster.settings import (
    API_SERVICE_IP,
    CLUSTER_DOMAIN,
    CONTROL_PLANE,
    CONTROL_PLANE_IP,
    HERE,
    KUBE,
    PODS,
    SERVICES,
    program,
)

# PodGroups of scheduling.k8s.io, which are off by default: the API version and the feature gates.
NATIVE_GANGS = {
    "1.36": (
        "v1alpha2",
        *("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"),
        *("WorkloadAwarePreemption", "WorkloadWithJob"),
    ),
    "1.37": (
        "v1beta1",
        *("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadWithJob"),
        *("CompositePodGroup", "PodGroupPreemptionPolicy"),
    ),
}


def control_plane(pki: Pki, flags: dict[str, list[str]]) -> Machine:
    _identities(pki)
    components = {
        "etcd": [
            *(str(program("etcd")), "--name=etcd"),
            "--data-dir=/run/etcd",  # in memory: no waiting for the disk
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            *("--snapshot-count=10000", "--logger=zap", "--log-outputs=stderr"),
        ],
        "kube-apiserver": _api_server(pki),
        "kube-controller-manager": _controllers(pki),
        "kube-scheduler": [
            str(program("kube-scheduler")),
            *_as(pki, "scheduler"),
            *("--bind-address=127.0.0.1", "--leader-elect=false"),
        ],
        "dns": [
            *(sys.executable, "-S", "-E", str(HERE / "dns.py"), CONTROL_PLANE_IP),
            *(str(pki.crt("ca")), str(pki.crt("dns")), str(pki.key("dns")), CLUSTER_DOMAIN),
        ],
    }
    if KUBE in NATIVE_GANGS:
        version, *gates = NATIVE_GANGS[KUBE]
        served = [version, *(["v1alpha3"] if "CompositePodGroup" in gates else [])]
        components["kube-apiserver"].append(
            "--runtime-config=" + ",".join(f"scheduling.k8s.io/{each}=true" for each in served)
        )
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            components[name].append("--feature-gates=" + ",".join(f"{gate}=true" for gate in gates))
    for name, argv in components.items():
        argv.extend(flags.get(name, []))
    machine = Machine(CONTROL_PLANE)
    machine.define(hostname=CONTROL_PLANE, components=components)
    return machine


def _identities(pki: Pki) -> None:
    service = "kubernetes.default.svc"
    pki.issue(
        "apiserver",
        "kube-apiserver",
        names=(
            *("kubernetes", "kubernetes.default", service, f"{service}.{CLUSTER_DOMAIN}"),
            *("localhost", CONTROL_PLANE_IP, API_SERVICE_IP, "127.0.0.1"),
        ),
    )
    pki.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
    pki.issue("front-proxy-client", "front-proxy-client", ca="front-proxy-ca")
    pki.issue("admin", "kubernetes-admin", "system:masters")
    pki.issue("controller-manager", "system:kube-controller-manager")
    pki.issue("scheduler", "system:kube-scheduler")
    pki.issue("kube-proxy", "system:kube-proxy")
    # Its rights the API server sets up by itself.
    pki.issue("dns", "system:serviceaccount:kube-system:kube-dns")
    for name in ("admin", "controller-manager", "scheduler", "kube-proxy", "dns"):
        pki.kubeconfig(name)


def _as(pki: Pki, user: str) -> list[str]:
    path = pki.directory / f"{user}.kubeconfig"
    return [f"--{kind}kubeconfig={path}" for kind in ("", "authentication-", "authorization-")]


def _api_server(pki: Pki) -> list[str]:
    return [
        str(program("kube-apiserver")),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={CONTROL_PLANE_IP}",
        *("--bind-address=0.0.0.0", "--secure-port=6443"),
        f"--tls-cert-file={pki.crt('apiserver')}",
        f"--tls-private-key-file={pki.key('apiserver')}",
        f"--client-ca-file={pki.crt('ca')}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICES}",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        f"--service-account-key-file={pki.key('service-account')}",
        f"--service-account-signing-key-file={pki.key('service-account')}",
        f"--kubelet-certificate-authority={pki.crt('ca')}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki.crt('apiserver-kubelet-client')}",
        f"--kubelet-client-key={pki.key('apiserver-kubelet-client')}",
        f"--requestheader-client-ca-file={pki.crt('front-proxy-ca')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki.crt('front-proxy-client')}",
        f"--proxy-client-key-file={pki.key('front-proxy-client')}",
        "--enable-aggregator-routing=true",  # webhooks are called at their pods: no kube-proxy here
    ]


def _controllers(pki: Pki) -> list[str]:
    return [
        str(program("kube-controller-manager")),
        *_as(pki, "controller-manager"),
        "--bind-address=127.0.0.1",
        *("--leader-elect=false", "--use-service-account-credentials=true"),
        f"--service-account-private-key-file={pki.key('service-account')}",
        f"--root-ca-file={pki.crt('ca')}",
        f"--cluster-signing-cert-file={pki.crt('ca')}",
        f"--cluster-signing-key-file={pki.key('ca')}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--cluster-cidr={PODS}",
        *("--kube-api-qps=300", "--kube-api-burst=400"),  # its controllers start in 1 s, not 4
    ]
