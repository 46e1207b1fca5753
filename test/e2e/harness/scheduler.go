package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Scheduler is a running kube-scheduler.
type Scheduler struct {
	*Process
	Port int
}

// SchedulerConfig says how to change the shipped configuration for a test.
type SchedulerConfig struct {
	Kubeconfig    string // "": the scheduler's own user
	Extender      string // the new urlPrefix; "": no extender at all
	NodesMode     bool   // nodeCacheCapable: false
	NoBind        bool   // leave bindVerb out
	HTTPTimeout   string // "": as shipped
	LeaderElect   bool
	Block         bool   // deploy/extender-block.yaml in the scheduler of the cluster, in its place
	NoCertificate bool   // with TLS: shows none
	TLS           string // folder with the client's certificate; "": the extender speaks plain HTTP
}

// The scheduler of a cluster, as it is without a word about extenders.
const defaultConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
profiles:
- schedulerName: default-scheduler
  percentageOfNodesToScore: 100
`

// Render makes the scheduler's configuration out of the files in deploy/. Each line that is
// to be changed must be there exactly once, so that a test cannot run with something else unnoticed.
func (s SchedulerConfig) Render(kubeconfig string) (string, error) {
	name := "scheduler-config.yaml"
	if s.Block {
		name = "extender-block.yaml"
	}
	shipped, err := os.ReadFile(filepath.Join(Root(), "deploy", name))
	if err != nil {
		return "", err
	}
	text := string(shipped)
	if s.Block {
		text = defaultConfig + text
	}
	change := func(pattern, to string) {
		re := regexp.MustCompile(`(?m)^` + pattern + `.*\n`)
		if n := len(re.FindAllString(text, -1)); n != 1 && err == nil {
			err = fmt.Errorf("%s: %d lines match %q", name, n, pattern)
		}
		text = re.ReplaceAllLiteralString(text, to)
	}
	if s.Extender == "" {
		i := strings.Index(text, "\nextenders:\n")
		if i < 0 {
			return "", fmt.Errorf("%s: no extenders", name)
		}
		text = text[:i+1]
	} else {
		change(`- urlPrefix:`, "- urlPrefix: "+s.Extender+"\n")
		for _, f := range [][2]string{{"caFile", "ca.crt"}, {"certFile", "client.crt"}, {"keyFile", "client.key"}} {
			to := ""
			if s.TLS != "" && !(s.NoCertificate && f[0] != "caFile") {
				to = "    " + f[0] + ": " + filepath.Join(s.TLS, f[1]) + "\n"
			}
			change("    "+f[0]+": /etc/tessera/client/"+regexp.QuoteMeta(f[1]), to)
		}
		if s.TLS == "" {
			change(`  tlsConfig:`, "")
		}
		if s.NodesMode {
			change(`  nodeCacheCapable: true`, "  nodeCacheCapable: false\n")
		}
		if s.NoBind {
			change(`  bindVerb:`, "")
		}
		if s.HTTPTimeout != "" {
			change(`  httpTimeout:`, "  httpTimeout: "+s.HTTPTimeout+"\n")
		}
	}
	if !s.LeaderElect {
		change(`  leaderElect: true`, "  leaderElect: false\n")
	}
	text += "clientConnection: {kubeconfig: " + kubeconfig + ", qps: 5000, burst: 10000}\n" +
		"podInitialBackoffSeconds: 1\npodMaxBackoffSeconds: 2\n"
	return text, err
}

// StartScheduler runs kube-scheduler with that configuration and waits until it is ready.
func (c *ControlPlane) StartScheduler(cfg SchedulerConfig) (*Scheduler, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("kube-scheduler-%d", port)
	file := func(ext string) string { return filepath.Join(c.Dir, name+ext) }
	if cfg.Kubeconfig == "" {
		cfg.Kubeconfig = file(".kubeconfig")
		if err := WriteKubeconfig(cfg.Kubeconfig, c.Base, c.CAFile, SchedulerToken, ""); err != nil {
			return nil, err
		}
	}
	text, err := cfg.Render(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file(".yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := StartProcess(c.Dir, name, c.Binary, "kube-scheduler", "--config="+file(".yaml"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir="+file("-pki"), "--authentication-kubeconfig="+cfg.Kubeconfig,
		"--authorization-kubeconfig="+cfg.Kubeconfig,
		"--authentication-tolerate-lookup-failure=true",
		"--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics", "-v=3")
	if err != nil {
		return nil, err
	}
	s := &Scheduler{Process: p, Port: port}
	c.schedulers = append(c.schedulers, s)
	base := fmt.Sprintf("https://127.0.0.1:%d", port)
	err = c.waitFor(p, 60*time.Second, func() error {
		client, err := NewClient(base, "", filepath.Join(file("-pki"), "kube-scheduler.crt"))
		if err != nil {
			return err
		}
		defer client.HTTP.CloseIdleConnections()
		return client.Do("GET", "/readyz", "", nil, nil)
	})
	return s, err
}
