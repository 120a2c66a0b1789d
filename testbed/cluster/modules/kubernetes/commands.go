//go:build testbed

// Package testbed pins what Kubernetes itself runs on a node. It is apart from the control plane's module, whose
// binaries would be built anew with every change here.
package testbed

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
