package harness

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// CheckOptions are the bounds that the extender was started with.
type CheckOptions struct {
	ReserveMiB int64
	ClientsMax int     // 0: 60
	Overcommit float64 // sum of limits to capacity; 0: 1
}

// Books are what GPUs hold according to the API objects alone. They are made with nothing of the
// product in between: contract.md's keys, added up.
type Books struct {
	Faults    []string
	GPUs      map[string]*GPUBook // by node/UUID
	Allocated int                 // pods with an allocation
	Foreign   int                 // whole GPUs held by pods without one
}

// GPUBook is what one GPU holds.
type GPUBook struct {
	Node      string
	GPU       GPU
	Mode      string
	Holders   []string // pod/container
	Requested int64
	Limited   int64
	Portion   *big.Rat
	units     []string // who holds each MIG memory unit
	perKind   map[string]int
}

// Grant is what one container has.
type Grant struct {
	Who       string
	Mode      string
	Devices   []string // UUIDs, unless Mode is mig
	Placement []Placed
	Request   int64 // MiB
	Limit     int64
	Portion   *big.Rat
}

// Placed is a MIG instance.
type Placed struct {
	UUID, Profile string
	Start         int
}

// Grants returns what the containers of a bound pod have, by container.
func Grants(p *Pod) (map[string]*Grant, error) {
	names, err := allocationOf(p)
	if err != nil {
		return nil, err
	}
	ret := map[string]*Grant{}
	for _, c := range names {
		if ret[c], err = grantOf(p, c); err != nil {
			return nil, fmt.Errorf("container %s: %w", c, err)
		}
	}
	return ret, nil
}

// gpus of a node: by its inventory, else by its labels, which name GPUs by their index.
func gpus(n *Node) []GPU {
	if _, ok := n.Metadata.Annotations[InventoryKey]; ok {
		inv, _ := n.Inventory()
		return inv.GPUs
	}
	count, _ := strconv.Atoi(n.Metadata.Labels["nvidia.com/gpu.count"])
	mem, _ := strconv.ParseInt(n.Metadata.Labels["nvidia.com/gpu.memory"], 10, 64)
	var ret []GPU
	for i := range count {
		ret = append(ret, GPU{UUID: strconv.Itoa(i), Index: i, MemMiB: mem, Healthy: true})
	}
	return ret
}

// Check adds up the allocations of all bound pods that are not finished.
func Check(nodes []Node, pods []Pod, opt CheckOptions) *Books {
	if opt.ClientsMax == 0 {
		opt.ClientsMax = 60
	}
	if opt.Overcommit == 0 {
		opt.Overcommit = 1
	}
	b := &Books{GPUs: map[string]*GPUBook{}}
	byNode := map[string][]*GPUBook{}
	for i := range nodes {
		for _, g := range gpus(&nodes[i]) {
			book := &GPUBook{Node: nodes[i].Metadata.Name, GPU: g, Portion: new(big.Rat),
				perKind: map[string]int{}}
			b.GPUs[book.Node+"/"+g.UUID] = book
			byNode[book.Node] = append(byNode[book.Node], book)
		}
	}
	foreign := map[string]int{}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Finished() {
			continue
		}
		if p.Metadata.Annotations[AllocationKey] != "" {
			b.Allocated++
			b.pod(p)
		} else if p.Spec.SchedulerName == "tessera" && p.WantsGPU() {
			b.fault("%s is on %s without an allocation", p.Metadata.Key(), p.Spec.NodeName)
		} else {
			foreign[p.Spec.NodeName] += p.wholeGPUs()
		}
	}
	for _, g := range b.GPUs {
		b.checkGPU(g, opt)
	}
	for node, want := range foreign {
		b.Foreign += want
		free := 0
		for _, g := range byNode[node] {
			if len(g.Holders) == 0 {
				free++
			}
		}
		if _, known := byNode[node]; known && free < want {
			b.fault("node %s: %d GPUs are held by pods without allocation, but only %d are free",
				node, want, free)
		}
	}
	sort.Strings(b.Faults)
	return b
}

func (b *Books) fault(format string, args ...any) {
	b.Faults = append(b.Faults, fmt.Sprintf(format, args...))
}

// pod books what one pod holds.
func (b *Books) pod(p *Pod) {
	who := p.Metadata.Key()
	size := 0
	for k, v := range p.Metadata.Annotations {
		size += len(k) + len(v)
	}
	if size > 262144 {
		b.fault("%s: %d bytes of annotations", who, size)
	}
	covered, err := allocationOf(p)
	if err != nil {
		b.fault("%s: %v", who, err)
		return
	}
	for _, c := range covered {
		g, err := grantOf(p, c)
		if err != nil {
			b.fault("%s/%s: %v", who, c, err)
			continue
		}
		b.grant(p, g)
		for _, f := range p.askedFaults(c, g, b) {
			b.fault("%s/%s: %s", who, c, f)
		}
	}
}

func (b *Books) grant(p *Pod, g *Grant) {
	take := func(uuid string) *GPUBook {
		book := b.GPUs[p.Spec.NodeName+"/"+uuid]
		if book == nil {
			b.fault("%s: %s is no GPU of node %s", g.Who, uuid, p.Spec.NodeName)
			return nil
		}
		if book.Mode != "" && book.Mode != g.Mode {
			b.fault("%s: %s in mode %s is given to %s in mode %s", book.Node, uuid, book.Mode, g.Who, g.Mode)
		}
		book.Mode = g.Mode
		book.Holders = append(book.Holders, g.Who)
		return book
	}
	for i, uuid := range g.Devices {
		if slices.Contains(g.Devices[:i], uuid) {
			b.fault("%s: has %s twice", g.Who, uuid)
		}
		if book := take(uuid); book != nil {
			book.Requested += g.Request
			book.Limited += g.Limit
			book.Portion.Add(book.Portion, g.Portion)
		}
	}
	for _, pl := range g.Placement {
		if book := take(pl.UUID); book != nil {
			b.place(book, g.Who, pl)
		}
	}
}

// place marks the memory units that a MIG instance covers.
func (b *Books) place(book *GPUBook, who string, pl Placed) {
	if book.GPU.MIG == nil || book.GPU.MIG.Geometry == nil {
		b.fault("%s: %s has no MIG geometry", who, pl.UUID)
		return
	}
	geo := book.GPU.MIG.Geometry
	i := slices.IndexFunc(geo.Profiles, func(p Profile) bool { return p.Name == pl.Profile })
	if i < 0 || !slices.Contains(geo.Profiles[i].Starts, pl.Start) {
		b.fault("%s: %s:%d is no placement that %s has", who, pl.Profile, pl.Start, pl.UUID)
		return
	}
	if book.units == nil {
		book.units = make([]string, geo.Units)
	}
	book.perKind[pl.Profile]++
	if book.perKind[pl.Profile] > geo.Profiles[i].Max {
		b.fault("%s: %d instances of %s", pl.UUID, book.perKind[pl.Profile], pl.Profile)
	}
	for u := pl.Start; u < pl.Start+geo.Profiles[i].Units; u++ {
		if book.units[u] != "" {
			b.fault("%s: unit %d is given to %s and to %s", pl.UUID, u, book.units[u], who)
		}
		book.units[u] = who
	}
}

func (b *Books) checkGPU(g *GPUBook, opt CheckOptions) {
	room := g.GPU.MemMiB - opt.ReserveMiB
	if g.Requested > room {
		b.fault("%s %s: %d of %d MiB requested by %s", g.Node, g.GPU.UUID, g.Requested, room,
			strings.Join(g.Holders, " "))
	}
	if float64(g.Limited) > float64(room)*opt.Overcommit {
		b.fault("%s %s: limits of %d MiB over %d", g.Node, g.GPU.UUID, g.Limited, room)
	}
	if g.Mode == "exclusive" && len(g.Holders) > 1 {
		b.fault("%s %s: whole, but held by %s", g.Node, g.GPU.UUID, strings.Join(g.Holders, " "))
	}
	if g.Mode != "mig" && len(g.Holders) > opt.ClientsMax {
		b.fault("%s %s: %d clients", g.Node, g.GPU.UUID, len(g.Holders))
	}
	if g.Portion.Cmp(big.NewRat(1, 1)) > 0 {
		b.fault("%s %s: compute shares of %s", g.Node, g.GPU.UUID, g.Portion.FloatString(6))
	}
}

// allocationOf returns the containers that tessera.dev/allocation covers.
func allocationOf(p *Pod) ([]string, error) {
	text := p.Metadata.Annotations[AllocationKey]
	parts := strings.SplitN(text, ";", 4)
	if len(parts) != 4 || parts[0] != "v1" || len(parts[2]) != 16 {
		return nil, fmt.Errorf("%s: %q cannot be read", AllocationKey, text)
	}
	if parts[1] != p.Spec.NodeName {
		return nil, fmt.Errorf("allocation is for node %s, pod is on %s", parts[1], p.Spec.NodeName)
	}
	var names []string
	for _, item := range strings.Split(parts[3], ",") {
		if item == "" {
			continue
		}
		name, _, ok := strings.Cut(item, "=")
		if !ok || !p.hasContainer(name) {
			return nil, fmt.Errorf("%s: %q names no container of the pod", AllocationKey, item)
		}
		names = append(names, name)
	}
	return names, nil
}

func (p *Pod) containers() []Container {
	return append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...)
}

func (p *Pod) hasContainer(name string) bool {
	return slices.ContainsFunc(p.containers(), func(c Container) bool { return c.Name == name })
}

func miB(text string) (int64, error) {
	n, ok := strings.CutSuffix(text, "Mi")
	v, err := strconv.ParseInt(n, 10, 64)
	if !ok || err != nil || v <= 0 {
		return 0, fmt.Errorf("%q is no amount of MiB", text)
	}
	return v, nil
}

// grantOf reads the keys of one container.
func grantOf(p *Pod, c string) (*Grant, error) {
	a := p.Metadata.Annotations
	key := ContainerPrefix + c
	g := &Grant{Who: p.Metadata.Key() + "/" + c, Mode: a[key+".gpu-compute.mode"], Portion: new(big.Rat)}
	if v := a[TesseraContainers+c+".mig-placement"]; v != "" && g.Mode == "mig" {
		for _, item := range strings.Split(v, ",") {
			uuid, rest, ok := strings.Cut(item, "/")
			profile, start, ok2 := strings.Cut(rest, ":")
			n, err := strconv.Atoi(start)
			if !ok || !ok2 || err != nil {
				return nil, fmt.Errorf("placement %q cannot be read", item)
			}
			g.Placement = append(g.Placement, Placed{uuid, profile, n})
		}
		return g, nil
	}
	if a[key+".gpus.devices"] == "" {
		return nil, fmt.Errorf("no devices")
	}
	for _, d := range strings.Split(a[key+".gpus.devices"], ",") {
		g.Devices = append(g.Devices, strings.TrimPrefix(d, "k8s.device-plugin.nvidia.com/gpu="))
	}
	if g.Mode == "exclusive" {
		return g, nil
	}
	if g.Mode != "time-slicing" && g.Mode != "sm-sharing" {
		return nil, fmt.Errorf("mode %q", g.Mode)
	}
	var err error
	if g.Request, err = miB(a[key+".gpu-memory.request"]); err != nil {
		return nil, err
	}
	if g.Limit, err = miB(a[key+".gpu-memory.limit"]); err != nil {
		return nil, err
	}
	if g.Limit < g.Request {
		return nil, fmt.Errorf("limit %d below request %d", g.Limit, g.Request)
	}
	if v := a[key+".gpu-compute.portion"]; v != "" {
		if _, ok := g.Portion.SetString(v); !ok || g.Portion.Sign() <= 0 {
			return nil, fmt.Errorf("portion %q", v)
		}
	}
	return g, nil
}
