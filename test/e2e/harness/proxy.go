package harness

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Proxy stands between two parts and can do to the traffic what networks and servers do.
type Proxy struct {
	URL string

	target    func() *url.URL // where the next request goes; nil: 503
	transport http.RoundTripper
	server    *http.Server

	mu        sync.Mutex
	rng       *rand.Rand
	faults    []*Fault
	watches   map[*http.Request]context.CancelFunc
	paused    chan struct{} // not nil: everything waits until it is closed
	deaf      map[*http.Request]bool
	exchanges []Exchange
	record    func(*http.Request) bool
}

// Fault is what happens to requests that match. The zero value does nothing.
type Fault struct {
	Match      func(*http.Request) bool // nil: every request that is no watch
	Prob       float64                  // of a matching request to be hit; 0: each
	Count      int                      // ends after so many hits; 0: never
	Delay      time.Duration            // before all else
	Code       int                      // answer with this code
	RetryAfter int                      // seconds, with Code
	Body       string                   // with Code
	Reset      bool                     // cut the connection
	After      bool                     // let the server do it first, and throw its answer away

	hits int
}

// Exchange is one request with its answer.
type Exchange struct {
	Method, Path string
	Request      []byte
	Code         int
	Reply        []byte
	Start, End   time.Time
}

// ProxyHTTP2 lets new proxies speak HTTP/2 over TLS.
var ProxyHTTP2 = false

// NewProxy listens on loopback. With certFile and keyFile it speaks TLS (HTTP/1.1).
func NewProxy(seed int64, target func() *url.URL, upstream *tls.Config, certFile, keyFile string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, rng: rand.New(rand.NewSource(seed)),
		watches: map[*http.Request]context.CancelFunc{},
		transport: &http.Transport{TLSClientConfig: upstream, MaxIdleConnsPerHost: 512,
			ForceAttemptHTTP2: upstream != nil}}
	p.server = &http.Server{Handler: p}
	if !ProxyHTTP2 { // whose streams cannot be reset as networks do
		p.server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	if certFile != "" {
		p.URL = "https://" + l.Addr().String()
		go func() { _ = p.server.ServeTLS(l, certFile, keyFile) }()
	} else {
		p.URL = "http://" + l.Addr().String()
		go func() { _ = p.server.Serve(l) }()
	}
	return p, nil
}

// NewAPIProxy stands before the API server and uses its certificate.
func (c *ControlPlane) NewAPIProxy(seed int64) (*Proxy, error) {
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	u, err := url.Parse(c.Base)
	if err != nil {
		return nil, err
	}
	return NewProxy(seed, func() *url.URL { return u }, &tls.Config{RootCAs: pool}, c.CAFile,
		strings.TrimSuffix(c.CAFile, ".crt")+".key")
}

// Close ends it with all connections.
func (p *Proxy) Close() {
	p.Resume()
	_ = p.server.Close()
}

// Add puts a fault behind those that are there; the first that matches and hits counts.
func (p *Proxy) Add(f *Fault) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Hits of a fault so far.
func (p *Proxy) Hits(f *Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.hits
}

// AllHits of the faults there are.
func (p *Proxy) AllHits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	hits := 0
	for _, f := range p.faults {
		hits += f.hits
	}
	return hits
}

// Clear takes all faults away and returns how many hits they had.
func (p *Proxy) Clear() int {
	hits := p.AllHits()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
	return hits
}

// Record keeps the exchanges that match from now on.
func (p *Proxy) Record(match func(*http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record, p.exchanges = match, nil
}

// Exchanges recorded so far whose path ends so.
func (p *Proxy) Exchanges(suffix string) []Exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ret []Exchange
	for _, e := range p.exchanges {
		if strings.HasSuffix(e.Path, suffix) {
			ret = append(ret, e)
		}
	}
	return ret
}

// CutWatches breaks all watches and returns how many.
func (p *Proxy) CutWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.watches {
		cancel()
	}
	return len(p.watches)
}

// SwallowWatches lets nothing through on the watches that are open, which stay so; new ones work.
func (p *Proxy) SwallowWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = map[*http.Request]bool{}
	for r := range p.watches {
		p.deaf[r] = true
	}
	return len(p.deaf)
}

func (p *Proxy) swallows(r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deaf[r]
}

// Pause holds everything up, open watches too, without closing a connection.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

// Resume ends Pause.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

// IsWatch tells whether the request is a watch.
func IsWatch(r *http.Request) bool {
	w := r.URL.Query().Get("watch")
	return w == "true" || w == "1"
}

// Binds matches the POST of a Binding.
func Binds(r *http.Request) bool {
	return r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/binding")
}

func (p *Proxy) hit(r *http.Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Count > 0 && f.hits >= f.Count {
			continue
		}
		if f.Match == nil && IsWatch(r) || f.Match != nil && !f.Match(r) {
			continue
		}
		if f.Prob > 0 && p.rng.Float64() >= f.Prob {
			continue
		}
		f.hits++
		return f
	}
	return nil
}

func (p *Proxy) hold(ctx context.Context) {
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if paused == nil {
		return
	}
	select {
	case <-paused:
	case <-ctx.Done():
	}
}

// reset cuts the connection so that the client sees no end of an answer.
func reset(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = conn.Close()
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.hold(r.Context())
	if IsWatch(r) {
		ctx, cancel := context.WithCancel(r.Context())
		r = r.WithContext(ctx)
		p.mu.Lock()
		p.watches[r] = cancel
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			delete(p.watches, r)
			p.mu.Unlock()
			cancel()
		}()
	}
	if f := p.hit(r); f != nil && p.fault(f, w, r) {
		return
	}
	target := p.target()
	if target == nil {
		http.Error(w, "nobody is ready", http.StatusServiceUnavailable)
		return
	}
	p.forward(target, w, r)
}

// fault returns true when it has answered.
func (p *Proxy) fault(f *Fault, w http.ResponseWriter, r *http.Request) bool {
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
		}
	}
	if f.Code == 0 && !f.Reset {
		return false
	}
	if target := p.target(); f.After && target != nil {
		p.forward(target, &discard{header: http.Header{}}, r)
	}
	if f.Reset {
		reset(w)
		return true
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	body := f.Body
	if body == "" {
		body = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","code":` +
			strconv.Itoa(f.Code) + `}`
	}
	w.Header().Set("Content-Type", JSON)
	w.WriteHeader(f.Code)
	_, _ = io.WriteString(w, body)
	return true
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func (p *Proxy) forward(target *url.URL, w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	record := p.record != nil && p.record(r)
	p.mu.Unlock()
	e := Exchange{Method: r.Method, Path: r.URL.Path, Start: time.Now()}
	if record {
		e.Request, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(e.Request))
	}
	rp := httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.Out.Host = target.Host
		},
		Transport:     p.transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) },
		ModifyResponse: func(resp *http.Response) error {
			if record {
				e.Code = resp.StatusCode
				e.Reply, _ = io.ReadAll(resp.Body)
				resp.Body = io.NopCloser(bytes.NewReader(e.Reply))
			}
			if IsWatch(r) {
				resp.Body = &held{resp.Body, p, r}
			}
			return nil
		},
	}
	rp.ServeHTTP(w, r)
	if record {
		e.End = time.Now()
		p.mu.Lock()
		p.exchanges = append(p.exchanges, e)
		p.mu.Unlock()
	}
}

// held is the body of a watch that Pause can stop and SwallowWatches can silence.
type held struct {
	io.ReadCloser
	p *Proxy
	r *http.Request
}

func (h *held) Read(b []byte) (int, error) {
	n, err := h.ReadCloser.Read(b)
	h.p.hold(h.r.Context())
	if h.p.swallows(h.r) { // also its end: the connection stays open until the reader gives up
		for err == nil {
			_, err = h.ReadCloser.Read(b)
		}
		<-h.r.Context().Done()
		return 0, h.r.Context().Err()
	}
	return n, err
}
