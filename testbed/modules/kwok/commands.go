//go:build testbed

// Package testbed pins KWOK, which plays the kubelet for pods that need not really run.
package testbed

import _ "sigs.k8s.io/kwok/cmd/kwok"
