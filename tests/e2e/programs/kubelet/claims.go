package main

// Resource claims: the kubelet's own claim manager and plugin watcher, with claims that a command gives instead of an
// API server.
//
//	{"op": "claim", "claim": {...}}                         a ResourceClaim, as the API server has it now
//	{"op": "prepare", "pod": {..., "claims": ["name"]}}     before its containers start; the CDI devices of each
//	{"op": "unprepare", "pod": {...}}                       the pod has ended
//	{"op": "drivers", "pod": {"name": "gpu.example.com"}}   whether that driver has registered

import (
	"context"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	draplugin "k8s.io/kubernetes/pkg/kubelet/cm/dra/plugin"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

type claims struct {
	manager *dra.Manager
	mutex   sync.Mutex
	known   map[string]*resourceapi.ResourceClaim // by namespace/name
}

func beginClaims(k *kubelet, dir string) (*claims, error) {
	c := &claims{known: map[string]*resourceapi.ResourceClaim{}}
	manager, err := dra.NewManager(klog.FromContext(k.ctx), client{claims: c}, dir)
	if err != nil {
		return nil, err
	}
	node := func(context.Context) (*v1.Node, error) {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, nil
	}
	if err = manager.Start(k.ctx, k.GetActivePods, node, ready{}); err != nil {
		return nil, err
	}
	plugins := pluginmanager.NewPluginManager(filepath.Join(dir, "plugins_registry"), &record.FakeRecorder{})
	plugins.AddHandler(registration.DRAPlugin, manager.GetWatcherHandler())
	go plugins.Run(k.ctx, ready{}, k.ctx.Done())
	c.manager = manager
	return c, nil
}

func (c *claims) put(claim *resourceapi.ResourceClaim) answer {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.known[claim.Namespace+"/"+claim.Name] = claim
	return answer{}
}

func (c *claims) prepare(ctx context.Context, pod *v1.Pod) answer {
	if err := c.manager.PrepareResources(ctx, pod); err != nil {
		return answer{"ok": false, "message": err.Error()}
	}
	found := map[string][]string{}
	for i := range pod.Spec.Containers {
		info, err := c.manager.GetResources(pod, &pod.Spec.Containers[i])
		if err != nil {
			return answer{"ok": false, "message": err.Error()}
		}
		for _, device := range info.CDIDevices {
			found[pod.Spec.Containers[i].Name] = append(found[pod.Spec.Containers[i].Name], device.Name)
		}
	}
	return answer{"ok": true, "cdi": found}
}

func (c *claims) unprepare(ctx context.Context, pod *v1.Pod) answer {
	if err := c.manager.UnprepareResources(ctx, pod); err != nil {
		return answer{"ok": false, "message": err.Error()}
	}
	return answer{"ok": true}
}

func (c *claims) registered(driver string) answer {
	_, err := c.manager.GetWatcherHandler().(*draplugin.DRAPluginManager).GetPlugin(driver)
	return answer{"ok": err == nil}
}

// A client that has the claims above and nothing else.
type client struct {
	kubernetes.Interface
	claims *claims
}

func (c client) ResourceV1() resourceclient.ResourceV1Interface { return group{claims: c.claims} }

type group struct {
	resourceclient.ResourceV1Interface
	claims *claims
}

func (g group) ResourceSlices() resourceclient.ResourceSliceInterface { return slices{} }

func (g group) ResourceClaims(namespace string) resourceclient.ResourceClaimInterface {
	return getter{claims: g.claims, namespace: namespace}
}

type slices struct {
	resourceclient.ResourceSliceInterface
}

func (slices) DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error {
	return nil
}

type getter struct {
	resourceclient.ResourceClaimInterface
	claims    *claims
	namespace string
}

func (g getter) Get(_ context.Context, name string, _ metav1.GetOptions) (*resourceapi.ResourceClaim, error) {
	g.claims.mutex.Lock()
	defer g.claims.mutex.Unlock()
	if found := g.claims.known[g.namespace+"/"+name]; found != nil {
		return found, nil
	}
	return nil, errors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
}
