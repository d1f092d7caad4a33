// SPDX-License-Identifier: Apache-2.0

// Package api holds what describes the doors: the protocol buffers, and how HTTP maps to them.
package api

import _ "embed" // the rules

// RESTRules is rest.yaml: for each rpc of roquet.v1 its HTTP method, path and body. Callers must not change it.
//
//go:embed rest.yaml
var RESTRules []byte
