// The kubelet's own device manager, topology manager, CPU manager and pod-resources server, without the rest of the
// kubelet. Commands come as JSON, one a line, on standard input; each is answered by one line.
//
//	{"op": "admit", "pod": {"uid": "u", "namespace": "n", "name": "p", "containers": [{"name": "c", "limits": {...}}], "init": [...]}}
//	{"op": "start", "uid": "u"}     what the runtime would be given, after PreStartContainer
//	{"op": "remove", "uid": "u"}    the pod has ended
//	{"op": "counts"}                capacity and allocatable
//	{"op": "lowest"}                the lowest allocatable since the last "lowest", looked at each millisecond
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

// The exported constructor knows only /var/lib/kubelet.
//
//go:linkname newManagerImpl k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManagerImpl(klog.Logger, string, []cadvisorapi.Node, topologymanager.Store) (*devicemanager.ManagerImpl, error)

type container struct {
	Name    string            `json:"name"`
	Limits  map[string]string `json:"limits"`
	Sidecar bool              `json:"sidecar"` // an init container that goes on
}

type podSpec struct {
	UID        string      `json:"uid"`
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Init       []container `json:"init"`
	Containers []container `json:"containers"`
	Claims     []string    `json:"claims"` // names of ResourceClaims, of which each container has all devices
}

type command struct {
	Op    string                     `json:"op"`
	Pod   podSpec                    `json:"pod"`
	UID   string                     `json:"uid"`
	Claim *resourceapi.ResourceClaim `json:"claim"`
}

type answer map[string]any

type kubelet struct {
	ctx      context.Context
	devices  devicemanager.Manager
	topology topologymanager.Manager
	cpus     cpumanager.Manager
	claims   *claims

	mutex  sync.Mutex // of the two below
	pods   []*v1.Pod
	lowest map[v1.ResourceName]int64
}

func main() {
	dir := flag.String("dir", "", "the kubelet's directory, for device-plugins and pod-resources")
	policy := flag.String("topology-policy", "none", "none, best-effort, restricted or single-numa-node")
	scope := flag.String("topology-scope", "container", "container or pod")
	cpuPolicy := flag.String("cpu-policy", "none", "none or static")
	nodes := flag.Int("numa-nodes", 2, "NUMA nodes of the machine")
	cores := flag.Int("cores", 32, "cores of each NUMA node")
	klog.InitFlags(nil)
	flag.Parse()
	k := &kubelet{ctx: context.Background(), lowest: map[v1.ResourceName]int64{}}
	check(k.begin(*dir, *policy, *scope, *cpuPolicy, machine(*nodes, *cores)))
	go k.sample()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var told command
		check(json.Unmarshal(lines.Bytes(), &told))
		made, err := json.Marshal(k.do(told))
		check(err)
		fmt.Println(string(made))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func machine(nodes, cores int) *cadvisorapi.MachineInfo {
	made := &cadvisorapi.MachineInfo{NumCores: nodes * cores, NumSockets: nodes}
	for node := range nodes {
		here := cadvisorapi.Node{Id: node, Memory: 1 << 39}
		for core := range cores {
			here.Cores = append(here.Cores, cadvisorapi.Core{Id: node*cores + core, Threads: []int{node*cores + core}, SocketID: node})
		}
		made.Topology = append(made.Topology, here)
	}
	return made
}

func (k *kubelet) begin(dir, policy, scope, cpuPolicy string, info *cadvisorapi.MachineInfo) (err error) {
	logger := klog.FromContext(k.ctx)
	plugins, listed := filepath.Join(dir, "device-plugins"), filepath.Join(dir, "pod-resources")
	for _, folder := range []string{plugins, listed} {
		if err = os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if k.topology, err = topologymanager.NewManager(logger, info.Topology, policy, scope, nil); err != nil {
		return err
	}
	reserved := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	k.cpus, err = cpumanager.NewManager(logger, cpuPolicy, nil, 1000*time.Hour, info, cpuset.New(), reserved, dir, k.topology)
	if err != nil {
		return err
	}
	if k.devices, err = newManagerImpl(logger, filepath.Join(plugins, "kubelet.sock"), info.Topology, k.topology); err != nil {
		return err
	}
	k.topology.AddHintProvider(logger, k.devices)
	k.topology.AddHintProvider(logger, k.cpus)
	if err = k.cpus.Start(k.ctx, k.GetActivePods, ready{}, nil, nil, containermap.NewContainerMap()); err != nil {
		return err
	}
	if err = k.devices.Start(logger, k.GetActivePods, ready{}, containermap.NewContainerMap(), sets.New[string]()); err != nil {
		return err
	}
	if k.claims, err = beginClaims(k, dir); err != nil {
		return err
	}
	return k.serve(filepath.Join(listed, "kubelet.sock"))
}

// As the kubelet's ListenAndServePodResources, with its limit of calls.
func (k *kubelet) serve(socket string) error {
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(apisgrpc.WithRateLimiter(k.ctx, "podresources", podresources.DefaultQPS, podresources.DefaultBurstTokens))
	providers := podresources.PodResourcesProviders{Pods: k, Devices: devices{k}, Cpus: k, Memory: nothing{}, DynamicResources: nothing{}}
	podresourcesapi.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(k.ctx, providers))
	go func() { check(server.Serve(listener)) }()
	return nil
}

func (k *kubelet) do(told command) answer {
	switch told.Op {
	case "admit":
		return k.admit(made(told.Pod))
	case "start":
		return k.start(k.pod(told.UID))
	case "remove":
		k.remove(told.UID)
		return answer{}
	case "claim":
		return k.claims.put(told.Claim)
	case "prepare":
		return k.claims.prepare(k.ctx, made(told.Pod))
	case "unprepare":
		return k.claims.unprepare(k.ctx, made(told.Pod))
	case "drivers":
		return k.claims.registered(told.Pod.Name)
	case "counts":
		capacity, allocatable, _ := k.devices.GetCapacity(klog.Background())
		return answer{"capacity": counts(capacity), "allocatable": counts(allocatable)}
	case "lowest":
		k.mutex.Lock()
		defer k.mutex.Unlock()
		found := k.lowest
		k.lowest = map[v1.ResourceName]int64{}
		return answer{"lowest": found}
	}
	return answer{"error": "no such op: " + told.Op}
}

func (k *kubelet) admit(pod *v1.Pod) answer {
	others := k.GetActivePods()
	k.mutex.Lock()
	k.pods = append(k.pods, pod)
	k.mutex.Unlock()
	result := k.topology.Admit(k.ctx, &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others, Operation: lifecycle.AddOperation})
	if !result.Admit {
		k.remove(string(pod.UID))
		return answer{"ok": false, "reason": result.Reason, "message": result.Message}
	}
	held, cpus := map[string]map[string][]string{}, map[string][]int64{}
	for _, each := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		held[each.Name] = map[string][]string{}
		for name, instances := range k.devices.GetDevices(string(pod.UID), each.Name) {
			for id := range instances {
				held[each.Name][name] = append(held[each.Name][name], id)
			}
		}
		cpus[each.Name] = k.GetCPUs(pod, &each)
	}
	return answer{"ok": true, "devices": held, "cpus": cpus}
}

func (k *kubelet) start(pod *v1.Pod) answer {
	if pod == nil {
		return answer{"ok": false, "message": "no such pod"}
	}
	variables := map[string]map[string]string{}
	for _, each := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		options, err := k.devices.GetDeviceRunContainerOptions(k.ctx, pod, &each)
		if err != nil {
			return answer{"ok": false, "message": err.Error()}
		}
		variables[each.Name] = map[string]string{}
		if options != nil {
			for _, variable := range options.Envs {
				variables[each.Name][variable.Name] = variable.Value
			}
		}
	}
	return answer{"ok": true, "envs": variables}
}

func (k *kubelet) remove(uid string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	kept := []*v1.Pod{}
	for _, pod := range k.pods {
		if string(pod.UID) != uid {
			kept = append(kept, pod)
		}
	}
	k.pods = kept
}

func (k *kubelet) pod(uid string) *v1.Pod {
	for _, pod := range k.GetActivePods() {
		if string(pod.UID) == uid {
			return pod
		}
	}
	return nil
}

func (k *kubelet) sample() {
	for range time.Tick(time.Millisecond) {
		_, allocatable, _ := k.devices.GetCapacity(klog.Background())
		k.mutex.Lock()
		for name, count := range counts(allocatable) {
			if low, known := k.lowest[name]; !known || count < low {
				k.lowest[name] = count
			}
		}
		k.mutex.Unlock()
	}
}

func counts(list v1.ResourceList) map[v1.ResourceName]int64 {
	made := map[v1.ResourceName]int64{}
	for name, quantity := range list {
		made[name] = quantity.Value()
	}
	return made
}

func made(spec podSpec) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Namespace: spec.Namespace, UID: types.UID(spec.UID)}}
	pod.Spec.InitContainers, pod.Spec.Containers = containers(spec.Init), containers(spec.Containers)
	for _, name := range spec.Claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		for i := range pod.Spec.Containers {
			asked := &pod.Spec.Containers[i].Resources
			asked.Claims = append(asked.Claims, v1.ResourceClaim{Name: name})
		}
	}
	return pod
}

func containers(specs []container) (found []v1.Container) {
	for _, spec := range specs {
		limits := v1.ResourceList{}
		for name, amount := range spec.Limits {
			limits[v1.ResourceName(name)] = resource.MustParse(amount)
		}
		each := v1.Container{Name: spec.Name, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}
		if spec.Sidecar {
			always := v1.ContainerRestartPolicyAlways
			each.RestartPolicy = &always
		}
		found = append(found, each)
	}
	return found
}

// What the pod-resources server asks.

func (k *kubelet) GetActivePods() []*v1.Pod {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return append([]*v1.Pod{}, k.pods...)
}

func (k *kubelet) GetPods() []*v1.Pod { return k.GetActivePods() }

func (k *kubelet) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range k.GetActivePods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (k *kubelet) GetCPUs(pod *v1.Pod, container *v1.Container) []int64 {
	return numbers(k.cpus.GetExclusiveCPUs(string(pod.UID), container.Name))
}

func (k *kubelet) GetPodCPUs(string) []int64 { return nil }

func (k *kubelet) GetAllocatableCPUs() []int64 { return numbers(k.cpus.GetAllocatableCPUs()) }

func numbers(set cpuset.CPUSet) (found []int64) {
	for _, each := range set.List() {
		found = append(found, int64(each))
	}
	return found
}

type devices struct{ kubelet *kubelet }

func (d devices) UpdateAllocatedDevices(logger klog.Logger) {
	d.kubelet.devices.UpdateAllocatedDevices(logger)
}

func (d devices) GetDevices(uid, container string) []*podresourcesapi.ContainerDevices {
	return listing(d.kubelet.devices.GetDevices(uid, container))
}

func (d devices) GetAllocatableDevices(logger klog.Logger) []*podresourcesapi.ContainerDevices {
	return listing(d.kubelet.devices.GetAllocatableDevices(logger))
}

func listing(held devicemanager.ResourceDeviceInstances) (rows []*podresourcesapi.ContainerDevices) {
	for name, instances := range held {
		for id, device := range instances {
			row := podresourcesapi.ContainerDevices{ResourceName: name, DeviceIds: []string{id}}
			if topology := device.GetTopology(); topology != nil {
				row.Topology = &podresourcesapi.TopologyInfo{}
				for _, node := range topology.GetNodes() {
					row.Topology.Nodes = append(row.Topology.Nodes, &podresourcesapi.NUMANode{ID: node.GetID()})
				}
			}
			rows = append(rows, &row)
		}
	}
	return rows
}

type nothing struct{}

func (nothing) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.ContainerMemory {
	return nil
}
func (nothing) GetPodMemory(klog.Logger, string) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory(klog.Logger) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetDynamicResources(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}

type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }
