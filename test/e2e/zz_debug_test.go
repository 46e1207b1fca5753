package e2e

import ("testing";"fmt";"time")

func TestZZPreempt(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920)})
	for i := range 4 {
		w.make(sharePod(fmt.Sprint("low", i), 40960))
	}
	w.waitCounts(4, 30*time.Second)
	time.Sleep(500*time.Millisecond)
	for i := range 4 {
		t.Log(time.Now().UTC().Format("05.0000"))
		must(t, w.cp.Admin.RemovePod(sharePod(fmt.Sprint("low", i), 40960)))
		t.Log(time.Now().UTC().Format("05.0000"))
		time.Sleep(100*time.Millisecond)
	}
	time.Sleep(500*time.Millisecond)
	t.Log(w.exts[0].LogTail(40))
}
