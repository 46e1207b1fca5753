package harness

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The parts of API objects that the tests look at.
type (
	// Meta is ObjectMeta.
	Meta struct {
		Name              string            `json:"name,omitempty"`
		GenerateName      string            `json:"generateName,omitempty"`
		Namespace         string            `json:"namespace,omitempty"`
		UID               string            `json:"uid,omitempty"`
		ResourceVersion   string            `json:"resourceVersion,omitempty"`
		DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
		Labels            map[string]string `json:"labels,omitempty"`
		Annotations       map[string]string `json:"annotations,omitempty"`
	}
	// Resources of a container.
	Resources struct {
		Limits   map[string]string `json:"limits,omitempty"`
		Requests map[string]string `json:"requests,omitempty"`
	}
	// Container of a pod.
	Container struct {
		Name          string    `json:"name"`
		Image         string    `json:"image"`
		RestartPolicy string    `json:"restartPolicy,omitempty"`
		Resources     Resources `json:"resources"`
	}
	// Gate is a scheduling gate.
	Gate struct {
		Name string `json:"name"`
	}
	// PodSpec of a pod.
	PodSpec struct {
		NodeName                      string            `json:"nodeName,omitempty"`
		SchedulerName                 string            `json:"schedulerName,omitempty"`
		PriorityClassName             string            `json:"priorityClassName,omitempty"`
		Priority                      int32             `json:"priority,omitempty"`
		TerminationGracePeriodSeconds *int64            `json:"terminationGracePeriodSeconds,omitempty"`
		NodeSelector                  map[string]string `json:"nodeSelector,omitempty"`
		SchedulingGates               []Gate            `json:"schedulingGates,omitempty"`
		InitContainers                []Container       `json:"initContainers,omitempty"`
		Containers                    []Container       `json:"containers,omitempty"`
	}
	// Condition of a pod or node.
	Condition struct {
		Type               string `json:"type"`
		Status             string `json:"status"`
		Reason             string `json:"reason,omitempty"`
		Message            string `json:"message,omitempty"`
		LastHeartbeatTime  string `json:"lastHeartbeatTime,omitempty"`
		LastTransitionTime string `json:"lastTransitionTime,omitempty"`
	}
	// PodStatus of a pod.
	PodStatus struct {
		Phase             string      `json:"phase,omitempty"`
		NominatedNodeName string      `json:"nominatedNodeName,omitempty"`
		Conditions        []Condition `json:"conditions,omitempty"`
	}
	// Pod is a pod.
	Pod struct {
		APIVersion string    `json:"apiVersion,omitempty"`
		Kind       string    `json:"kind,omitempty"`
		Metadata   Meta      `json:"metadata"`
		Spec       PodSpec   `json:"spec"`
		Status     PodStatus `json:"status,omitzero"`
	}
	// NodeStatus of a node.
	NodeStatus struct {
		Capacity    map[string]string `json:"capacity,omitempty"`
		Allocatable map[string]string `json:"allocatable,omitempty"`
		Conditions  []Condition       `json:"conditions,omitempty"`
	}
	// Node is a node.
	Node struct {
		APIVersion string     `json:"apiVersion,omitempty"`
		Kind       string     `json:"kind,omitempty"`
		Metadata   Meta       `json:"metadata"`
		Status     NodeStatus `json:"status,omitzero"`
	}
	// List of pods or nodes.
	List[T any] struct {
		Metadata Meta `json:"metadata"`
		Items    []T  `json:"items"`
	}
)

// Key is namespace/name.
func (m *Meta) Key() string { return m.Namespace + "/" + m.Name }

// Finished pods hold nothing.
func (p *Pod) Finished() bool {
	return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
}

// Condition of that type, or an empty one.
func (p *Pod) Condition(kind string) Condition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}

// NewPod is a pod for the tessera scheduler with one container "main" that has these limits, given as
// "name=quantity".
func NewPod(name string, limits ...string) *Pod {
	p := &Pod{APIVersion: "v1", Kind: "Pod", Metadata: Meta{Name: name, Namespace: "default"}}
	p.Spec.SchedulerName = "tessera"
	p.Spec.Containers = []Container{NewContainer("main", limits...)}
	return p
}

// NewContainer with limits "name=quantity".
func NewContainer(name string, limits ...string) Container {
	c := Container{Name: name, Image: "none"}
	for _, l := range limits {
		if c.Resources.Limits == nil {
			c.Resources.Limits = map[string]string{}
		}
		k, v, _ := strings.Cut(l, "=")
		c.Resources.Limits[k] = v
	}
	return c
}

// Annotate sets annotations, given as key and value in turn.
func (p *Pod) Annotate(kv ...string) *Pod {
	if p.Metadata.Annotations == nil {
		p.Metadata.Annotations = map[string]string{}
	}
	for i := 0; i+1 < len(kv); i += 2 {
		p.Metadata.Annotations[kv[i]] = kv[i+1]
	}
	return p
}

// With adds containers.
func (p *Pod) With(c ...Container) *Pod {
	p.Spec.Containers = append(p.Spec.Containers, c...)
	return p
}

// PodPath of a pod in the API.
func PodPath(p *Pod) string {
	return "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + p.Metadata.Name
}

// CreatePod creates it and returns what the server made of it.
func (c *Client) CreatePod(p *Pod) (*Pod, error) {
	var ret Pod
	err := c.Post("/api/v1/namespaces/"+p.Metadata.Namespace+"/pods", p, &ret)
	return &ret, err
}

// Pod reads a pod of the namespace default.
func (c *Client) Pod(name string) (*Pod, error) {
	var ret Pod
	err := c.Get("/api/v1/namespaces/default/pods/"+name, &ret)
	return &ret, err
}

// Pods lists the pods of all namespaces.
func (c *Client) Pods() ([]Pod, error) {
	var l List[Pod]
	err := c.Get("/api/v1/pods", &l)
	return l.Items, err
}

// Nodes lists all nodes.
func (c *Client) Nodes() ([]Node, error) {
	var l List[Node]
	err := c.Get("/api/v1/nodes", &l)
	return l.Items, err
}

// SetPhase says what a kubelet would say.
func (c *Client) SetPhase(p *Pod, phase string) error {
	return c.Merge(PodPath(p)+"/status", map[string]any{"status": map[string]any{"phase": phase}})
}

// RemovePod ends a pod at once, as the kubelet does when its containers are gone.
func (c *Client) RemovePod(p *Pod) error { return c.Delete(PodPath(p), 0) }

// CreateNode creates it with its status.
func (c *Client) CreateNode(n *Node) error {
	if err := c.Post("/api/v1/nodes", n, nil); err != nil {
		return err
	}
	return c.Merge("/api/v1/nodes/"+n.Metadata.Name+"/status", map[string]any{"status": n.Status})
}

// DeleteNode deletes it.
func (c *Client) DeleteNode(name string) error { return c.Delete("/api/v1/nodes/"+name, -1) }

// Wipe removes all nodes and pods.
func (c *Client) Wipe() error {
	pods, err := c.Pods()
	if err != nil {
		return err
	}
	for i := range pods {
		if err := c.RemovePod(&pods[i]); err != nil && Code(err) != 404 {
			return err
		}
	}
	return c.Delete("/api/v1/nodes", -1)
}

// Inventory as the node agent writes it.
type Inventory struct {
	Version  int      `json:"version"`
	Driver   string   `json:"driver"`
	Features []string `json:"features"`
	GPUs     []GPU    `json:"gpus"`
}

// GPU of an inventory.
type GPU struct {
	UUID    string `json:"uuid"`
	Index   int    `json:"index"`
	Product string `json:"product"`
	MemMiB  int64  `json:"mem_mib"`
	Healthy bool   `json:"healthy"`
	Foreign string `json:"foreign,omitempty"`
	MIG     *MIG   `json:"mig,omitempty"`
}

// MIG state and geometry of a GPU.
type MIG struct {
	Capable   bool       `json:"capable"`
	Enabled   bool       `json:"enabled"`
	Geometry  *Geometry  `json:"geometry,omitempty"`
	Instances []Instance `json:"instances,omitempty"`
}

// Geometry of MIG instances.
type Geometry struct {
	Compute  int       `json:"compute"`
	Units    int       `json:"units"`
	Profiles []Profile `json:"profiles"`
}

// Profile of MIG instances.
type Profile struct {
	Name    string `json:"name"`
	ID      int    `json:"id"`
	MemMiB  int64  `json:"mem_mib"`
	Compute int    `json:"compute"`
	Units   int    `json:"units"`
	Max     int    `json:"max"`
	Starts  []int  `json:"starts"`
}

// Instance of MIG that is present.
type Instance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Ours    bool   `json:"ours,omitempty"`
}

// H100MIG is the geometry of an H100 with 80 GB.
func H100MIG() *MIG {
	each := []int{0, 1, 2, 3, 4, 5, 6}
	return &MIG{Capable: true, Enabled: true, Geometry: &Geometry{Compute: 7, Units: 8, Profiles: []Profile{
		{"1g.10gb", 19, 9984, 1, 1, 7, each},
		{"1g.10gb+me", 20, 9984, 1, 1, 1, each},
		{"1g.20gb", 15, 20096, 1, 2, 4, []int{0, 2, 4, 6}},
		{"2g.20gb", 14, 20096, 2, 2, 3, []int{0, 2, 4}},
		{"3g.40gb", 9, 40448, 3, 4, 2, []int{0, 4}},
		{"4g.40gb", 5, 40448, 4, 4, 1, []int{0}},
		{"7g.80gb", 0, 81152, 7, 8, 1, []int{0}},
	}}}
}

// Names of keys and resources.
const (
	InventoryKey      = "tessera.dev/inventory"
	AllocationKey     = "tessera.dev/allocation"
	MemoryResource    = "tessera.dev/gpu-memory"
	GPUResource       = "nvidia.com/gpu"
	ContainerPrefix   = "nvidia.com/container."
	TesseraContainers = "tessera.dev/container."
)

// NewNode is a ready node with so many GPUs of so many MiB.
func NewNode(name string, gpus int, memMiB int64) *Node {
	n := &Node{APIVersion: "v1", Kind: "Node", Metadata: Meta{Name: name}}
	n.Metadata.Labels = map[string]string{"kubernetes.io/hostname": name}
	now := time.Now().UTC().Format(time.RFC3339)
	n.Status.Capacity = map[string]string{"cpu": "128", "memory": "1Ti", "pods": "250"}
	n.Status.Conditions = []Condition{{Type: "Ready", Status: "True", Reason: "KubeletReady",
		LastHeartbeatTime: now, LastTransitionTime: now}}
	n.Status.Allocatable = n.Status.Capacity
	if gpus > 0 {
		inv := Inventory{Version: 1, Driver: "580.65.06",
			Features: []string{"mps-v3", "memory-limits", "mig"}}
		for i := range gpus {
			inv.GPUs = append(inv.GPUs, GPU{UUID: fmt.Sprintf("GPU-%s-%d", name, i), Index: i,
				Product: "NVIDIA-H100-80GB-HBM3", MemMiB: memMiB, Healthy: true})
		}
		n.SetInventory(inv)
	}
	return n
}

// SetInventory sets the annotation and the totals that belong to it.
func (n *Node) SetInventory(inv Inventory) {
	text, err := json.Marshal(inv)
	if err != nil {
		panic(err)
	}
	if n.Metadata.Annotations == nil {
		n.Metadata.Annotations = map[string]string{}
	}
	n.Metadata.Annotations[InventoryKey] = string(text)
	var total int64
	for _, g := range inv.GPUs {
		total += g.MemMiB
	}
	n.Status.Capacity[MemoryResource] = fmt.Sprint(total)
	n.Status.Capacity[GPUResource] = fmt.Sprint(len(inv.GPUs))
}

// Inventory that the node carries; ok is false without one, or with one that cannot be read.
func (n *Node) Inventory() (inv Inventory, ok bool) {
	text, ok := n.Metadata.Annotations[InventoryKey]
	if ok {
		ok = json.Unmarshal([]byte(text), &inv) == nil
	}
	return inv, ok
}
