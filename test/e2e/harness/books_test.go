package harness

import (
	"fmt"
	"strings"
	"testing"
)

// bound is a pod on node n with an allocation for its containers, given as name and letters.
func bound(name, node, list string, kv ...string) *Pod {
	p := NewPod(name).Annotate(AllocationKey, "v1;"+node+";0123456789abcdef;"+list).Annotate(kv...)
	p.Spec.NodeName = node
	return p
}

func share(name, node, uuids string, request, limit int, mode string) *Pod {
	key := ContainerPrefix + "main"
	return bound(name, node, "main=drlm", key+".gpus.devices", uuids, key+".gpu-compute.mode", mode,
		key+".gpu-memory.request", fmt.Sprintf("%dMi", request),
		key+".gpu-memory.limit", fmt.Sprintf("%dMi", limit))
}

func mig(name, uuid, profile string, start int) *Pod {
	return bound(name, "n", "main=mg", ContainerPrefix+"main.gpu-compute.mode", "mig",
		TesseraContainers+"main.mig-placement", fmt.Sprintf("%s/%s:%d", uuid, profile, start))
}

func whole(name, uuid string) *Pod {
	p := bound(name, "n", "main=dm", ContainerPrefix+"main.gpu-compute.mode", "exclusive",
		ContainerPrefix+"main.gpus.devices", uuid)
	p.Spec.Containers[0].Resources.Limits = map[string]string{GPUResource: "1"}
	return p
}

func foreign(name string, gpus string) *Pod {
	p := NewPod(name, GPUResource+"="+gpus)
	p.Spec.SchedulerName, p.Spec.NodeName = "default-scheduler", "n"
	return p
}

// The checker must see each kind of fault, and none where there is none.
func TestCheck(t *testing.T) {
	const a, b = "GPU-n-0", "GPU-n-1"
	finished := share("done", "n", a, 1000, 1000, "time-slicing")
	finished.Status.Phase = "Succeeded"
	wanted := NewPod("wanted").Annotate("gpu-fraction", "0.5")
	wanted.Spec.NodeName = "n"
	for _, x := range []struct {
		name string
		pods []*Pod
		want string // "": no fault
	}{
		{"full", []*Pod{share("p", "n", a, 600, 600, "time-slicing"), share("q", "n", a, 400, 400, "time-slicing")}, ""},
		{"one too many MiB", []*Pod{share("p", "n", a, 600, 600, "time-slicing"), share("q", "n", a, 401, 401, "time-slicing")}, "1001 of 1000 MiB"},
		{"limits", []*Pod{share("p", "n", a, 100, 700, "time-slicing"), share("q", "n", a, 100, 400, "time-slicing")}, "limits of 1100"},
		{"limit below request", []*Pod{share("p", "n", a, 100, 99, "time-slicing")}, "below request"},
		{"two modes", []*Pod{share("p", "n", a, 100, 100, "time-slicing"), share("q", "n", a, 100, 100, "sm-sharing")}, "in mode"},
		{"other node's GPU", []*Pod{share("p", "n", "GPU-m-0", 100, 100, "sm-sharing")}, "is no GPU of node"},
		{"unknown GPU", []*Pod{share("p", "n", "GPU-x", 100, 100, "sm-sharing")}, "is no GPU of node"},
		{"same GPU twice", []*Pod{share("p", "n", a+","+a, 100, 100, "sm-sharing")}, "twice"},
		{"wrong node", []*Pod{func() *Pod { p := share("p", "n", a, 100, 100, "sm-sharing"); p.Spec.NodeName = "m"; return p }()}, "allocation is for node"},
		{"no allocation", []*Pod{wanted}, "without an allocation"},
		{"finished holds nothing", []*Pod{finished, share("q", "n", a, 1000, 1000, "sm-sharing")}, ""},
		{"fraction", []*Pod{share("p", "n", a, 333, 333, "sm-sharing").Annotate("gpu-fraction", "0.3335")}, ""},
		{"fraction not met", []*Pod{share("p", "n", a, 334, 334, "sm-sharing").Annotate("gpu-fraction", "0.3335")}, "asks for 333"},
		{"memory not met", []*Pod{share("p", "n", a, 100, 100, "sm-sharing").Annotate("gpu-memory", "101")}, "asks for 101"},
		{"devices not met", []*Pod{share("p", "n", a, 100, 100, "sm-sharing").Annotate("gpu-memory", "100", "gpu-fraction-num-devices", "2")}, "asks for 2 GPUs"},
		{"two whole", []*Pod{whole("p", a), whole("q", b)}, ""},
		{"whole twice", []*Pod{whole("p", a), whole("q", a)}, "whole, but held by"},
		{"whole and share", []*Pod{whole("p", a), share("q", "n", a, 1, 1, "sm-sharing")}, "in mode"},
		{"foreign fits", []*Pod{whole("p", a), foreign("f", "1")}, ""},
		{"foreign does not fit", []*Pod{whole("p", a), foreign("f", "3")}, "only 2 are free"},
		{"mig", []*Pod{mig("p", "GPU-n-2", "3g.40gb", 4), mig("q", "GPU-n-2", "1g.10gb", 3)}, ""},
		{"mig overlap", []*Pod{mig("p", "GPU-n-2", "3g.40gb", 4), mig("q", "GPU-n-2", "1g.10gb", 4)}, "unit 4"},
		{"mig start", []*Pod{mig("p", "GPU-n-2", "3g.40gb", 2)}, "no placement"},
		{"mig many", []*Pod{mig("p", "GPU-n-2", "1g.10gb+me", 0), mig("q", "GPU-n-2", "1g.10gb+me", 1)}, "2 instances"},
		{"unreadable", []*Pod{bound("p", "n", "main=drlm")}, "no devices"},
		{"foreign container", []*Pod{bound("p", "n", "other=drlm")}, "names no container"},
	} {
		t.Run(x.name, func(t *testing.T) {
			n := NewNode("n", 3, 1000)
			inv, _ := n.Inventory()
			inv.GPUs[2].MIG = H100MIG()
			n.SetInventory(inv)
			var pods []Pod
			for _, p := range x.pods {
				pods = append(pods, *p)
			}
			faults := Check([]Node{*n, *NewNode("m", 1, 1000)}, pods, CheckOptions{}).Faults
			if x.want == "" && len(faults) > 0 || x.want != "" && len(faults) == 0 {
				t.Fatalf("faults: %q", faults)
			}
			if x.want != "" && !strings.Contains(faults[0], x.want) {
				t.Errorf("%q does not say %q", faults, x.want)
			}
		})
	}
}

// Clients and compute shares are bounded too.
func TestCheckBounds(t *testing.T) {
	n := NewNode("n", 1, 1000)
	var pods []Pod
	for i := range 3 {
		p := share(fmt.Sprint("p", i), "n", "GPU-n-0", 100, 100, "sm-sharing")
		pods = append(pods, *p.Annotate(ContainerPrefix+"main.gpu-compute.portion", "0.3"))
	}
	if f := Check([]Node{*n}, pods, CheckOptions{ClientsMax: 3}).Faults; len(f) != 0 {
		t.Error(f)
	}
	if f := Check([]Node{*n}, pods, CheckOptions{ClientsMax: 2}).Faults; len(f) != 1 {
		t.Error(f)
	}
	if f := Check([]Node{*n}, pods, CheckOptions{ReserveMiB: 701}).Faults; len(f) != 2 {
		t.Error(f) // requests and limits
	}
	pods[2].Annotate(ContainerPrefix+"main.gpu-compute.portion", "0.400000001")
	if f := Check([]Node{*n}, pods, CheckOptions{}).Faults; len(f) != 1 {
		t.Error(f)
	}
}
