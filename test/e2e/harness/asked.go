package harness

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// WantsGPU tells whether anything in the pod asks for a GPU.
func (p *Pod) WantsGPU() bool {
	for k := range p.Metadata.Annotations {
		if k == "gpu-fraction" || k == "gpu-memory" ||
			strings.HasPrefix(k, ContainerPrefix) && strings.Contains(k, ".gpu-memory.") ||
			strings.HasPrefix(k, TesseraContainers) && strings.HasSuffix(k, ".mig-profile") {
			return true
		}
	}
	for _, c := range p.containers() {
		for r, n := range c.Resources.Limits {
			if (r == GPUResource || strings.HasPrefix(r, "nvidia.com/mig-")) && n != "0" {
				return true
			}
		}
	}
	return false
}

// wholeGPUs that the device plugin gives the pod.
func (p *Pod) wholeGPUs() int {
	sum := 0
	for _, c := range p.Spec.Containers {
		n, _ := strconv.Atoi(c.Resources.Limits[GPUResource])
		sum += n
	}
	return sum
}

func (p *Pod) limits(container string) map[string]string {
	for _, c := range p.containers() {
		if c.Name == container {
			return c.Resources.Limits
		}
	}
	return nil
}

// target is the container that the pod-level keys speak of.
func (p *Pod) target() string {
	if name := p.Metadata.Annotations["gpu-fraction-container-name"]; name != "" {
		return name
	}
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Name
}

// askedFaults compares what the container got with what the pod asks for, as far as the pod still
// says so: the container's own memory keys are overwritten by what was given.
func (p *Pod) askedFaults(container string, g *Grant, b *Books) []string {
	var faults []string
	say := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	a := p.Metadata.Annotations
	if n, ok := p.limits(container)[GPUResource]; ok && n != "0" {
		if want, _ := strconv.Atoi(n); g.Mode != "exclusive" || len(g.Devices) != want {
			say("asks for %s whole GPUs, has %d in mode %s", n, len(g.Devices), g.Mode)
		}
		return faults
	}
	if want := a[TesseraContainers+container+".mig-profile"]; want != "" {
		if len(g.Placement) != 1 || g.Placement[0].Profile != want {
			say("asks for %s, has %v", want, g.Placement)
		}
		return faults
	}
	fraction, memory := a["gpu-fraction"], a["gpu-memory"]
	if container != p.target() || fraction == "" && memory == "" {
		return nil
	}
	count := 1
	if v := a["gpu-fraction-num-devices"]; v != "" {
		count, _ = strconv.Atoi(v)
	}
	if len(g.Devices) != count {
		say("asks for %d GPUs, has %d", count, len(g.Devices))
	}
	for _, uuid := range g.Devices {
		book := b.GPUs[p.Spec.NodeName+"/"+uuid]
		if book == nil {
			continue
		}
		want, err := askedMiB(fraction, memory, book.GPU.MemMiB)
		if err != nil {
			say("%v", err)
		} else if want != g.Request {
			say("asks for %d MiB on %s, has %d", want, uuid, g.Request)
		}
	}
	return faults
}

// askedMiB is the amount that a fraction or a memory key means on a GPU of so many MiB.
func askedMiB(fraction, memory string, capacity int64) (int64, error) {
	if fraction != "" {
		r, ok := new(big.Rat).SetString(fraction)
		if !ok {
			return 0, fmt.Errorf("gpu-fraction %q", fraction)
		}
		r.Mul(r, new(big.Rat).SetInt64(capacity))
		return new(big.Int).Quo(r.Num(), r.Denom()).Int64(), nil
	}
	units := []string{"", "Mi", "Gi"}
	number := strings.TrimRight(memory, "MGi")
	i := slices.Index(units, memory[len(number):])
	v, err := strconv.ParseInt(number, 10, 64)
	if i < 0 || err != nil {
		return 0, fmt.Errorf("gpu-memory %q is in a form that the checker does not know", memory)
	}
	if i == 2 {
		v *= 1024
	}
	return v, nil
}
