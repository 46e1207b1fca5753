package harness

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Extender is a running tessera-extender.
type Extender struct {
	*Process
	URL  string // http://127.0.0.1:PORT, or https
	HTTP *http.Client
}

// ExtenderBinary is the program under test; E2E_EXTENDER names another one.
func ExtenderBinary() string {
	if path := os.Getenv("E2E_EXTENDER"); path != "" {
		return path
	}
	return filepath.Join(BuildDir(), "tessera-extender")
}

var extenderHelp = sync.OnceValues(func() (string, error) {
	out, err := exec.Command(ExtenderBinary(), "--help").CombinedOutput()
	return string(out), err
})

// ExtenderKnows tells whether --help mentions the option, e.g. "--kubeconfig".
func ExtenderKnows(option string) (bool, error) {
	help, err := extenderHelp()
	if err != nil {
		return false, fmt.Errorf("%s --help: %w", ExtenderBinary(), err)
	}
	return slices.Contains(strings.FieldsFunc(help, func(r rune) bool {
		return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), option), nil
}

// StartExtender runs the extender on a free port; it is not waited for.
func StartExtender(dir, name string, args ...string) (*Extender, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	argv := append([]string{ExtenderBinary(), "--listen=" + addr}, args...)
	p, err := StartProcess(dir, name, argv...)
	if err != nil {
		return nil, err
	}
	e := &Extender{Process: p, URL: "http://" + addr, HTTP: &http.Client{Timeout: 10 * time.Second}}
	for _, arg := range args {
		if ca, ok := strings.CutPrefix(arg, "--tls-client-ca="); ok {
			e.URL = "https://" + addr
			e.HTTP, err = TLSClient(ca, "", "")
		}
	}
	return e, err
}

// TLSClient trusts the authority in the file, and shows a certificate where one is given.
func TLSClient(caFile, certFile, keyFile string) (*http.Client, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate", caFile)
	}
	if certFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: cfg}}, nil
}

func (e *Extender) ok(path string) error {
	resp, err := e.HTTP.Get(e.URL + path)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		return &StatusError{Code: resp.StatusCode, Message: path}
	}
	return nil
}

// Ready tells whether it says so.
func (e *Extender) Ready() bool { return e.ok("/readyz") == nil }

// WaitReady waits for it, and fails at once when the program has ended.
func (e *Extender) WaitReady(timeout time.Duration) error {
	exited := false
	err := Poll(timeout, 20*time.Millisecond, func() error {
		if exited = e.Exited(); exited {
			return nil
		}
		return e.ok("/readyz")
	})
	if exited {
		err = fmt.Errorf("has ended")
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", e.Name, err, e.LogTail(20))
	}
	return nil
}

// Front stands in for the Service: what it gets goes to the extender that is ready.
type Front struct {
	*Proxy
	mu      sync.Mutex
	backend []*Extender
	last    *url.URL
	stop    chan struct{}
}

// NewFront starts it with no extender behind it.
func NewFront(seed int64) (*Front, error) {
	f := &Front{stop: make(chan struct{})}
	p, err := NewProxy(seed, f.pick, nil, "", "")
	if err != nil {
		return nil, err
	}
	f.Proxy = p
	go f.probe()
	return f, nil
}

// Set says which extenders are behind it.
func (f *Front) Set(e ...*Extender) {
	f.mu.Lock()
	f.backend = e
	f.mu.Unlock()
	f.look()
}

func (f *Front) pick() *url.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// look asks all of them once, as readiness probes do.
func (f *Front) look() {
	f.mu.Lock()
	backend := slices.Clone(f.backend)
	f.mu.Unlock()
	var ready *url.URL
	for _, e := range backend {
		if !e.Exited() && e.Ready() {
			ready, _ = url.Parse(e.URL)
			break
		}
	}
	f.mu.Lock()
	f.last = ready
	f.mu.Unlock()
}

func (f *Front) probe() {
	for {
		select {
		case <-f.stop:
			return
		case <-time.After(100 * time.Millisecond):
			f.look()
		}
	}
}

// Close ends it.
func (f *Front) Close() {
	close(f.stop)
	f.Proxy.Close()
}

// ModelGPU is what the extender itself says about a GPU.
type ModelGPU struct {
	UUID      string `json:"uuid"`
	BookedMiB int64  `json:"booked_mib"`
	LimitMiB  int64  `json:"limit_mib"`
	Mode      string `json:"mode"`
	Clients   int    `json:"clients"`
}

// Model returns the extender's own books by node/UUID.
func (e *Extender) Model() (map[string]ModelGPU, error) {
	resp, err := e.HTTP.Get(e.URL + "/api/v1/cluster")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return nil, &StatusError{Code: resp.StatusCode, Message: "/api/v1/cluster"}
	}
	var view struct {
		Nodes []struct {
			Name string     `json:"name"`
			GPUs []ModelGPU `json:"gpus"`
		} `json:"nodes"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&view); err != nil {
		return nil, err
	}
	ret := map[string]ModelGPU{}
	for _, n := range view.Nodes {
		for _, g := range n.GPUs {
			ret[n.Name+"/"+g.UUID] = g
		}
	}
	return ret, nil
}

// Metric sums the samples of a name, of all labels; buckets of histograms have names of their own.
func (e *Extender) Metric(name string) (float64, error) {
	resp, err := e.HTTP.Get(e.URL + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	sum, found := 0.0, false
	for _, line := range strings.Split(string(text), "\n") {
		key, value, ok := strings.Cut(line, " ")
		if base, _, _ := strings.Cut(key, "{"); ok && (key == name || base == name) {
			n, e := strconv.ParseFloat(value, 64)
			err = errors.Join(err, e)
			sum, found = sum+n, true
		}
	}
	if !found && err == nil {
		err = fmt.Errorf("no metric %s", name)
	}
	return sum, err
}

// CompareModel says where the extender's books differ from those made of the API objects. Only what
// is shared is compared by amount: a whole GPU and a MIG instance have no amount of their own.
func CompareModel(b *Books, model map[string]ModelGPU) []string {
	var diffs []string
	say := func(format string, args ...any) { diffs = append(diffs, fmt.Sprintf(format, args...)) }
	for uuid, g := range b.GPUs {
		m, ok := model[uuid]
		if !ok {
			say("%s: the extender does not know it", uuid)
			continue
		}
		mode := g.Mode
		if mode == "" {
			mode = "free"
		}
		if m.Mode != mode {
			say("%s: mode %s, the extender says %s", uuid, mode, m.Mode)
		}
		if mode == "exclusive" || mode == "mig" {
			continue
		}
		if m.BookedMiB != g.Requested || m.LimitMiB != g.Limited || m.Clients != len(g.Holders) {
			say("%s: %d MiB, limit %d, %d clients; the extender says %d, %d, %d", uuid, g.Requested,
				g.Limited, len(g.Holders), m.BookedMiB, m.LimitMiB, m.Clients)
		}
	}
	slices.Sort(diffs)
	return diffs
}
