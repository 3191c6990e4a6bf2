//go:build tools

// Package helm names the program that renders the chart in the tests.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
