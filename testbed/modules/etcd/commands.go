//go:build testbed

// Package testbed pins the etcd that backs the test bed's API server.
package testbed

import _ "go.etcd.io/etcd/server/v3"
