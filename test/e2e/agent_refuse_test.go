package e2e

import (
	"strings"
	"testing"

	"tessera.dev/e2e/harness"
)

// An allocation that is forged, for elsewhere, or more than there is does not start, and says why.
func TestAgentRefuses(t *testing.T) {
	n := newGPUNode(t, true)
	n.run(n.pod("holder", share(40960, 40960, "GPU-a")), sleeper("main"))
	n.run(n.pod("sharer", harness.Allocation(nodeName, harness.Share{Container: "main", GPUs: []string{"GPU-b"},
		Request: 1024, Limit: 1024, Mode: "sm-sharing", Portion: "0.7"})), sleeper("main"))
	forged := share(1024, 2048, "GPU-a")
	forged[harness.ContainerPrefix+"main.gpu-memory.limit"] = "81920Mi"
	digest := share(1024, 2048, "GPU-a")
	digest[harness.AllocationKey] = "v1;" + nodeName + ";0000000000000000;main=drlm"
	sharing := func(portion string) map[string]string {
		return harness.Allocation(nodeName, harness.Share{Container: "main", GPUs: []string{"GPU-b"},
			Request: 1024, Limit: 1024, Mode: "sm-sharing", Portion: portion})
	}
	for _, row := range []struct {
		name        string
		annotations map[string]string
		reason      string
	}{
		{"a limit raised by hand", forged, "digest"},
		{"a digest of zeros", digest, "digest"},
		{"another node", harness.Allocation("elsewhere", harness.Share{Container: "main",
			GPUs: []string{"GPU-a"}, Request: 1, Limit: 1}), "elsewhere"},
		{"a GPU that is not here", share(1024, 1024, "GPU-x"), "GPU-x"},
		{"a request above the limit", share(2048, 1024, "GPU-a"), "limit"},
		{"more than the GPU has", share(1024, 90000, "GPU-a"), "above the 81920 MiB of GPU-a"},
		{"more than is free", share(40961, 40961, "GPU-a"), "where other pods hold 40960 of 81920 MiB"},
		{"compute beyond 1", sharing("0.31"), "compute shares on GPU-b would be 1010 of 1,000"},
		{"another mode", share(1024, 1024, "GPU-b"), "other pods use the GPU in sm-sharing"},
		{"a share that nobody placed", map[string]string{"gpu-memory": "1024"}, "was not placed by Tessera"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := n.pod("refused", row.annotations)
			_, err := n.create(p, sleeper("main"))
			if err == nil || !strings.Contains(err.Error(), row.reason) ||
				!strings.Contains(err.Error(), `container "main" of pod default/refused`) {
				t.Errorf("the runtime says: %v; not %q", err, row.reason)
			}
			if !strings.Contains(n.agent.Log(), "event=refused pod=default/refused uid="+p.UID) {
				t.Error("the agent's log says nothing")
			}
			must(t, p.Remove())
			n.pods = n.pods[:len(n.pods)-1]
		})
	}
	// What was refused holds nothing.
	n.run(n.pod("fits", share(40960, 40960, "GPU-a")), sleeper("main"))
}
