//go:build testbed

// Package testbed pins Helm, with which the chart is tested.
package testbed

import _ "helm.sh/helm/v3/cmd/helm"
