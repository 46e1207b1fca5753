// Command controlplane runs one real control plane component, chosen by its name or by its first
// argument: etcd, kube-apiserver or kube-scheduler. It is a test tool.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func run(name string, args []string) bool {
	switch name {
	case "etcd":
		etcdmain.Main(args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		return false
	}
	return true
}

func main() {
	if run(filepath.Base(os.Args[0]), os.Args) {
		return
	}
	if len(os.Args) > 1 {
		// The commands read os.Args themselves.
		os.Args = os.Args[1:]
		if run(os.Args[0], os.Args) {
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-scheduler [FLAGS]")
	os.Exit(2)
}
