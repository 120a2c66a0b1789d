//go:build testbed

// Package testbed pins Kueue, with which jobs in its queues are tested.
package testbed

import _ "sigs.k8s.io/kueue/cmd/kueue"
