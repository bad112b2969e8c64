// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// One program for the test cluster: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl.
// The part to play is the name of the link by which it was started, or the first argument. One program, because the
// parts share nearly all of their code: six would take six links and 600 MB.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// As the programs of the Kubernetes release do: log formats and metrics register themselves.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// Functions, not commands: flags and feature gates are global, so only the part that is played may be made.
var parts = map[string]func(arguments []string) int{
	"etcd":                    runEtcd,
	"kube-apiserver":          runs(apiserver.NewAPIServerCommand),
	"kube-controller-manager": runs(controllers.NewControllerManagerCommand),
	"kube-scheduler":          runs(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 runs(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl":                 runKubectl,
}

func runs(command func() *cobra.Command) func([]string) int {
	return func([]string) int { return cli.Run(command()) }
}

func runEtcd(arguments []string) int {
	etcdmain.Main(append([]string{"etcd"}, arguments...))
	return 0
}

// kubectl's own errors are sentences for people; cli.Run would log them.
func runKubectl([]string) int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func main() {
	name := filepath.Base(os.Args[0])
	if parts[name] == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	run := parts[name]
	if run == nil {
		names := make([]string, 0, len(parts))
		for part := range parts {
			names = append(names, part)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "usage: %s %s ...\n", filepath.Base(os.Args[0]), strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}
