package e2e

import (
	"testing"

	"tessera.dev/e2e/harness"
)

// migNode has GPUs in MIG mode.
func migNode(name string, gpus int) *harness.Node {
	n := harness.NewNode(name, gpus, 81559)
	inv, _ := n.Inventory()
	for i := range inv.GPUs {
		inv.GPUs[i].MIG = harness.H100MIG()
	}
	n.SetInventory(inv)
	return n
}

// A 3g, two 2g and 1g's come to lie so that a 4g still fits on the second GPU. First fit, which takes the
// lowest start each time, has no room for it: 3g at 0 and 2g at 4 of the first GPU, 2g at 0 of the second.
func TestMIGKeepsRoom(t *testing.T) {
	node := migNode("mig", 2)
	inv, _ := node.Inventory()
	w := newWorld(t, setup{nodes: append(gpuNodes(1, 1, 81920), node)})
	for _, x := range []struct {
		name, profile string
		gpu, start    int
	}{
		{"a", "3g.40gb", 0, 4}, {"b", "2g.20gb", 0, 2}, {"c", "2g.20gb", 0, 0},
		{"d", "1g.10gb", 1, 6}, {"e", "1g.10gb", 1, 5}, {"f", "1g.10gb", 1, 4},
		{"g", "4g.40gb", 1, 0},
	} {
		w.make(harness.NewPod(x.name).Annotate(harness.TesseraContainers+"main.mig-profile", x.profile))
		got, err := harness.Grants(waitBound(t, w.cp, x.name))
		must(t, err)
		g := got["main"]
		if g == nil || len(g.Placement) != 1 {
			t.Fatalf("%s: %v", x.name, got)
		}
		p := g.Placement[0]
		if p.UUID != inv.GPUs[x.gpu].UUID || p.Start != x.start || p.Profile != x.profile {
			t.Errorf("%s: %+v, not %s at %d of GPU %d", x.name, p, x.profile, x.start, x.gpu)
		}
	}
	w.verify()
}

// By memory: the smallest profile that has it, and the next one where that has no room.
func TestMIGByMemory(t *testing.T) {
	w := newWorld(t, setup{nodes: append(gpuNodes(1, 1, 81920), migNode("mig", 1))})
	for _, x := range []struct{ name, memory, profile string }{
		{"a", "30Gi", "3g.40gb"}, {"b", "9000", "1g.10gb"}, {"c", "12Gi", "1g.20gb"},
	} {
		w.make(harness.NewPod(x.name).Annotate(harness.TesseraContainers+"main.mig-memory", x.memory))
		got, err := harness.Grants(waitBound(t, w.cp, x.name))
		must(t, err)
		if g := got["main"]; g == nil || len(g.Placement) != 1 || g.Placement[0].Profile != x.profile {
			t.Errorf("%s: %v, not %s", x.name, got["main"], x.profile)
		}
	}
	w.verify()
}
