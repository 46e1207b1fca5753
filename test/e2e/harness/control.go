// Package harness runs a real control plane (etcd, kube-apiserver, kube-scheduler) on loopback, with
// fake nodes and no kubelet, and checks from the API objects alone what was given to whom.
package harness

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Tokens of the static users.
const (
	AdminToken     = "admin-token"
	SchedulerToken = "scheduler-token"
)

const staticTokens = AdminToken + `,admin,1,"system:masters"
` + SchedulerToken + `,system:kube-scheduler,2
`

// ControlPlane is etcd and a kube-apiserver in a folder of their own; schedulers are added.
type ControlPlane struct {
	Dir      string
	Binary   string // one program that is all three
	CAFile   string
	Base     string // https://127.0.0.1:PORT
	EtcdBase string
	Admin    *Client

	etcdPort, peerPort, apiPort int
	etcd, api                   *Process
	schedulers                  []*Scheduler
}

// Root is the top of the source tree.
func Root() string {
	if dir := os.Getenv("E2E_ROOT"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, e := os.Stat(filepath.Join(dir, "test", "e2e", "go.mod")); e == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}

// BuildDir holds what was built: the programs of the product, and e2e/controlplane.
func BuildDir() string {
	if dir := os.Getenv("BUILD"); filepath.IsAbs(dir) {
		return dir
	} else if dir != "" {
		return filepath.Join(Root(), dir)
	}
	return filepath.Join(Root(), "build")
}

// NewControlPlane starts etcd and kube-apiserver and waits until both are ready.
func NewControlPlane() (*ControlPlane, error) {
	c := &ControlPlane{Binary: filepath.Join(BuildDir(), "e2e", "controlplane")}
	if _, err := os.Stat(c.Binary); err != nil {
		return nil, fmt.Errorf("%w (test/e2e/run.sh builds it)", err)
	}
	var err error
	if c.Dir, err = os.MkdirTemp("", "tessera-e2e-"); err != nil {
		return nil, err
	}
	for _, port := range []*int{&c.etcdPort, &c.peerPort, &c.apiPort} {
		if *port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	c.Base = fmt.Sprintf("https://127.0.0.1:%d", c.apiPort)
	c.EtcdBase = fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	c.CAFile = filepath.Join(c.Dir, "pki", "apiserver.crt")
	err = errors.Join(c.writeServiceAccountKeys(),
		os.WriteFile(filepath.Join(c.Dir, "tokens.csv"), []byte(staticTokens), 0o600))
	if err == nil {
		err = c.startEtcd()
	}
	if err == nil {
		err = c.StartAPIServer()
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) writeServiceAccountKeys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})
	public = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	return errors.Join(os.WriteFile(filepath.Join(c.Dir, "sa.key"), private, 0o600),
		os.WriteFile(filepath.Join(c.Dir, "sa.pub"), public, 0o600))
}

func (c *ControlPlane) startEtcd() error {
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.peerPort)
	p, err := StartProcess(c.Dir, "etcd", c.Binary, "etcd", "--name=e",
		"--data-dir="+filepath.Join(c.Dir, "etcd"),
		"--listen-client-urls="+c.EtcdBase, "--advertise-client-urls="+c.EtcdBase,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=e="+peer, "--unsafe-no-fsync", "--log-level=warn")
	if err != nil {
		return err
	}
	c.etcd = p
	return c.waitFor(p, 60*time.Second, func() error { return httpOK(c.EtcdBase + "/health") })
}

// StartAPIServer starts kube-apiserver on its port and waits until it is ready.
func (c *ControlPlane) StartAPIServer() error {
	file := func(name string) string { return filepath.Join(c.Dir, name) }
	p, err := StartProcess(c.Dir, "kube-apiserver", c.Binary, "kube-apiserver",
		"--etcd-servers="+c.EtcdBase, "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.apiPort), "--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", "--cert-dir="+file("pki"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+file("sa.pub"),
		"--service-account-signing-key-file="+file("sa.key"),
		"--token-auth-file="+file("tokens.csv"), "--authorization-mode=RBAC",
		"--allow-privileged=true",
		// No service account in pods, no not-ready taint on nodes: nobody would set or lift them.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--enable-priority-and-fairness=false", "--max-requests-inflight=0",
		"--max-mutating-requests-inflight=0", "--shutdown-delay-duration=0s")
	if err != nil {
		return err
	}
	c.api = p
	// The first start makes its certificate; before that there is nothing to trust.
	err = c.waitFor(p, 120*time.Second, func() error {
		if c.Admin == nil {
			admin, err := NewClient(c.Base, AdminToken, c.CAFile)
			if err != nil {
				return err
			}
			c.Admin = admin
		}
		return c.Admin.Do("GET", "/readyz", "", nil, nil)
	})
	if err != nil {
		return err
	}
	return c.waitFor(p, 60*time.Second, func() error {
		// Made by a start-up hook; the schedulers' rights are among them.
		return c.Admin.Get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-scheduler", nil)
	})
}

// Pids of the control plane's processes by name.
func (c *ControlPlane) Pids() map[string]int {
	return map[string]int{"etcd": c.etcd.Pid(), "kube-apiserver": c.api.Pid()}
}

// StopAPIServer ends kube-apiserver; kill: without a chance to finish what it is doing.
func (c *ControlPlane) StopAPIServer(kill bool) {
	if kill {
		c.api.Kill()
	} else {
		c.api.Stop()
	}
	c.Admin.HTTP.CloseIdleConnections()
}

func (c *ControlPlane) waitFor(p *Process, timeout time.Duration, ready func() error) error {
	exited := false
	err := Poll(timeout, 50*time.Millisecond, func() error {
		if exited = p.Exited(); exited {
			return nil
		}
		return ready()
	})
	if exited {
		err = errors.New("has ended")
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", p.Name, err, p.LogTail(20))
	}
	return nil
}

func httpOK(url string) error {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		return &StatusError{Code: resp.StatusCode, Message: url}
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig as kubectl would. tokenFile wins over token.
func WriteKubeconfig(path, server, caFile, token, tokenFile string) error {
	user := "    token: " + token
	if tokenFile != "" {
		user = "    tokenFile: " + tokenFile
	}
	text := strings.Join([]string{
		"apiVersion: v1",
		"kind: Config",
		"clusters:",
		"- cluster:",
		"    certificate-authority: " + caFile,
		"    server: " + server,
		"  name: e2e",
		"contexts:",
		"- context:",
		"    cluster: e2e",
		"    user: e2e",
		"  name: e2e",
		"current-context: e2e",
		"users:",
		"- name: e2e",
		"  user:",
		user,
		"",
	}, "\n")
	return os.WriteFile(path, []byte(text), 0o600)
}

// Stop ends all of it. E2E_KEEP=1 keeps the folder with the logs.
func (c *ControlPlane) Stop() {
	for _, s := range c.schedulers {
		s.Stop()
	}
	c.api.Stop()
	c.etcd.Stop()
	if os.Getenv("E2E_KEEP") == "" {
		_ = os.RemoveAll(c.Dir)
	} else {
		fmt.Println("kept:", c.Dir)
	}
}
