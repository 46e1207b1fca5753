package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"

	"tessera.dev/e2e/harness"
)

// item is what one container asks for.
type item struct {
	container        string
	fraction, memory string
	limitFraction    string
	limit            int64
	count            int
	mode             string
	compute          string
	profile          string
}

// asks reads the pod's requests.
func asks(p *harness.Pod) ([]item, error) {
	a := p.Metadata.Annotations
	var items []item
	target := a["gpu-fraction-container-name"]
	known := map[string]bool{}
	for i, c := range p.Spec.Containers {
		known[c.Name] = true
		if i == 0 && target == "" {
			target = c.Name
		}
		it := item{container: c.Name, count: 1, mode: a[harness.ContainerPrefix+c.Name+".gpu-compute.mode"],
			compute: a[harness.ContainerPrefix+c.Name+".gpu-compute.request"],
			profile: a[harness.TesseraContainers+c.Name+".mig-profile"]}
		fraction, hasFraction := a["gpu-fraction"]
		memory, hasMemory := a["gpu-memory"]
		own := a[harness.ContainerPrefix+c.Name+".gpu-memory.request"]
		leftover := a[harness.ContainerPrefix+c.Name+".gpus.devices"] != ""
		if it.mode == "" || leftover {
			it.mode = "time-slicing"
		}
		var err error
		switch n := c.Resources.Limits[harness.GPUResource]; {
		case n != "" && n != "0":
			it.mode = "exclusive"
			it.count, err = strconv.Atoi(n)
		case it.profile != "":
			it.mode = "mig"
			_, err = profileOf(it.profile)
		case c.Name == target && (hasFraction || hasMemory):
			it.fraction, it.memory, it.limitFraction = fraction, memory, a["gpu-fraction.limit"]
			if v := a["gpu-memory.limit"]; v != "" {
				it.limit, err = amount(v, true)
			}
			if v := a["gpu-fraction-num-devices"]; v != "" {
				it.count, err = strconv.Atoi(v)
			}
			if err == nil {
				err = validShare(fraction, memory, hasFraction)
			}
		case own != "" && !leftover:
			var mib int64
			mib, err = amount(own, false)
			it.memory = fmt.Sprint(mib)
			if v := a[harness.ContainerPrefix+c.Name+".gpu-memory.limit"]; v != "" && err == nil {
				it.limit, err = amount(v, false)
			}
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", c.Name, err)
		}
		items = append(items, it)
	}
	for k := range a {
		if rest, ok := strings.CutPrefix(k, harness.ContainerPrefix); ok {
			if name, _, _ := strings.Cut(rest, "."); !known[name] {
				return nil, fmt.Errorf("%s: no such container", k)
			}
		}
	}
	return items, nil
}

func validShare(fraction, memory string, hasFraction bool) error {
	if !hasFraction {
		_, err := amount(memory, true)
		return err
	}
	f, err := strconv.ParseFloat(fraction, 64)
	if err != nil || !(f > 0 && f < 1) {
		return fmt.Errorf("gpu-fraction: %q is not in (0, 1)", fraction)
	}
	return nil
}

// amount reads MiB, as a plain number where that is allowed.
func amount(text string, plain bool) (int64, error) {
	number := strings.TrimRight(text, "MGi")
	v, err := strconv.ParseInt(number, 10, 32)
	switch unit := text[len(number):]; {
	case err != nil || v <= 0 || unit == "" && !plain:
		return 0, fmt.Errorf("%q is no amount of memory", text)
	case unit == "Gi":
		return v * 1024, nil
	case unit == "Mi" || unit == "":
		return v, nil
	}
	return 0, fmt.Errorf("%q has an unknown unit", text)
}

func profileOf(name string) (harness.Profile, error) {
	for _, p := range harness.H100MIG().Geometry.Profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return harness.Profile{}, fmt.Errorf("%q is no MIG profile", name)
}

// onNode are the pods that hold something there, but for the one with that UID.
func (s *server) onNode(name, but string) []harness.Pod {
	var ret []harness.Pod
	for _, m := range []map[string]*harness.Pod{s.pods, s.reserved} {
		for uid, p := range m {
			if p.Spec.NodeName == name && uid != but && !p.Finished() {
				ret = append(ret, *p)
			}
		}
	}
	return ret
}

// choose finds GPUs on the node by trying; each try is judged by the checker. The lock is held.
func (s *server) choose(name, uid string, items []item) (map[string]string, string) {
	n := s.nodes[name]
	if n == nil {
		return nil, "node is not known"
	}
	if len(items) == 0 {
		return map[string]string{}, ""
	}
	inv, ok := n.Inventory()
	if !ok || len(inv.GPUs) == 0 {
		return nil, "node has no GPU"
	}
	pods := s.onNode(name, uid)
	for i := range pods {
		if tampered(&pods[i]) != "" {
			return nil, "node is fenced: a pod there has an unreadable allocation"
		}
	}
	a := map[string]string{}
	var list []string
	for _, it := range items {
		letters := ""
		for _, try := range tries(inv, it) {
			cand := map[string]string{}
			for k, v := range a {
				cand[k] = v
			}
			letters = write(cand, it, inv, try)
			sign(cand, name, append(slices.Clone(list), it.container+"="+letters))
			p := harness.NewPod("candidate").Annotate()
			p.Spec.Containers, p.Metadata.Annotations, p.Spec.NodeName = nil, cand, name
			for _, other := range items {
				p.Spec.Containers = append(p.Spec.Containers, harness.NewContainer(other.container))
			}
			if len(harness.Check([]harness.Node{*n}, append(slices.Clone(pods), *p), harness.CheckOptions{}).Faults) == 0 {
				a = cand
				break
			}
			letters = ""
		}
		if letters == "" {
			return nil, "no GPU has enough free"
		}
		list = append(list, it.container+"="+letters)
	}
	return a, ""
}

type try struct {
	gpus  []int
	start int
}

// tries lists the ways to give the item something, the fewest GPUs first in order.
func tries(inv harness.Inventory, it item) []try {
	var healthy []int
	var ret []try
	for i, g := range inv.GPUs {
		if g.Healthy && (it.mode == "mig") == (g.MIG != nil && g.MIG.Enabled) {
			healthy = append(healthy, i)
		}
	}
	if it.mode == "mig" {
		p, _ := profileOf(it.profile)
		for _, g := range healthy {
			for _, start := range p.Starts {
				ret = append(ret, try{[]int{g}, start})
			}
		}
		return ret
	}
	combinations(healthy, it.count, nil, func(gpus []int) { ret = append(ret, try{slices.Clone(gpus), 0}) })
	return ret
}

func combinations(from []int, n int, chosen []int, f func([]int)) {
	if n == 0 {
		f(chosen)
		return
	}
	for i := 0; i+n <= len(from); i++ {
		combinations(from[i+1:], n-1, append(chosen, from[i]), f)
	}
}

// write sets the keys of one container and returns their letters.
func write(a map[string]string, it item, inv harness.Inventory, t try) string {
	key := harness.ContainerPrefix + it.container
	a[key+".gpu-compute.mode"] = it.mode
	var uuids []string
	for _, g := range t.gpus {
		uuids = append(uuids, inv.GPUs[g].UUID)
	}
	if it.mode == "mig" {
		a[harness.TesseraContainers+it.container+".mig-placement"] =
			fmt.Sprintf("%s/%s:%d", uuids[0], it.profile, t.start)
		return "mg"
	}
	a[key+".gpus.devices"] = strings.Join(uuids, ",")
	if it.mode == "exclusive" {
		return "dm"
	}
	mib := func(fraction, memory string) int64 {
		v, _ := amount(memory+"Mi", false)
		if strings.HasSuffix(memory, "i") {
			v, _ = amount(memory, false)
		}
		if r, ok := new(big.Rat).SetString(fraction); ok {
			r.Mul(r, new(big.Rat).SetInt64(inv.GPUs[t.gpus[0]].MemMiB))
			v = new(big.Int).Quo(r.Num(), r.Denom()).Int64()
		}
		return v
	}
	request := mib(it.fraction, it.memory)
	limit := max(it.limit, request)
	if it.limitFraction != "" {
		limit = mib(it.limitFraction, "")
	}
	a[key+".gpu-memory.request"] = fmt.Sprintf("%dMi", request)
	a[key+".gpu-memory.limit"] = fmt.Sprintf("%dMi", limit)
	if it.compute != "" {
		a[key+".gpu-compute.portion"] = it.compute
		return "drlmp"
	}
	return "drlm"
}

func digest(a map[string]string, node, list string) string {
	var lines []string
	for _, entry := range strings.Split(list, ",") {
		name, _, _ := strings.Cut(entry, "=")
		for k, v := range a {
			if strings.HasPrefix(k, harness.ContainerPrefix+name+".gpu") && !strings.HasSuffix(k, ".gpu-compute.request") ||
				k == harness.TesseraContainers+name+".mig-placement" {
				lines = append(lines, k+"="+v)
			}
		}
	}
	sort.Strings(lines)
	sum := sha256.Sum256([]byte(node + "\n" + list + "\n" + strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}

func sign(a map[string]string, node string, list []string) {
	joined := strings.Join(list, ",")
	a[harness.AllocationKey] = "v1;" + node + ";" + digest(a, node, joined) + ";" + joined
}

// tampered says what is wrong with a bound pod's allocation, "" when nothing is or there is none.
func tampered(p *harness.Pod) string {
	text := p.Metadata.Annotations[harness.AllocationKey]
	if text == "" {
		return ""
	}
	if _, err := harness.Grants(p); err != nil {
		return err.Error()
	}
	parts := strings.SplitN(text, ";", 4)
	if digest(p.Metadata.Annotations, parts[1], parts[3]) != parts[2] {
		return "the digest is wrong"
	}
	return ""
}

// view is what /api/v1/cluster tells.
func (s *server) view() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := []map[string]any{}
	for name, n := range s.nodes {
		gpus := []harness.ModelGPU{}
		for _, g := range harness.Check([]harness.Node{*n}, s.onNode(name, ""), harness.CheckOptions{}).GPUs {
			mode := g.Mode
			if mode == "" {
				mode = "free"
			}
			gpus = append(gpus, harness.ModelGPU{UUID: g.GPU.UUID, BookedMiB: g.Requested, LimitMiB: g.Limited,
				Mode: mode, Clients: len(g.Holders)})
		}
		nodes = append(nodes, map[string]any{"name": name, "gpus": gpus})
	}
	return map[string]any{"nodes": nodes}
}
